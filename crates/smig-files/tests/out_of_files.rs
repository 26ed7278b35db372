//! A process without file descriptors left: a program of its own, as the limit is the process's.

use std::fs::{self, File};

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smig_files::{FileBody, Files, Options};
use tower_service::Service as _;

async fn get(files: &Files, path: &'static str) -> http::Response<FileBody> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static(path);
    let Ok(response) = files.clone().call(request).await;
    response
}

#[tokio::test]
async fn the_answer_is_to_try_again_and_then_it_works() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["kept", "big", "small"] {
        let size = if name == "small" { 10 } else { 200_000 };
        fs::write(folder.path().join(name), vec![b'x'; size]).unwrap();
    }
    let files = Files::new(folder.path(), Options::default()).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    for path in ["/big", "/small"] {
        let response = get(&files, path).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(response.headers()["retry-after"], "1");
    }
    // Two are enough, one for the file and one to look for its siblings. A small file is closed
    // once it is read.
    taken.truncate(taken.len() - 2);
    assert_eq!(get(&files, "/small").await.status(), StatusCode::OK);
    // A file that is only remembered makes place for one that is asked for.
    assert_eq!(get(&files, "/kept").await.status(), StatusCode::OK);
    let big = get(&files, "/big").await;
    assert_eq!(big.status(), StatusCode::OK);
    assert_eq!(big.into_body().collect().await.unwrap().to_bytes().len(), 200_000);
}
