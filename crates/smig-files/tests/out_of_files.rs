//! A process that is out of file descriptors: a test program of its own, as the limit is the
//! process's.

use std::fs::{self, File};

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smig_files::{FileBody, FileOptions, Files};
use tower_service::Service as _;

async fn get(files: &Files, path: &'static str) -> http::Response<FileBody> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static(path);
    let Ok(response) = files.clone().call(request).await;
    response
}

#[tokio::test]
async fn exhausted_descriptors_are_a_503_until_some_are_free() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["kept", "big", "small"] {
        let size = if name == "small" { 10 } else { 200_000 };
        fs::write(directory.path().join(name), vec![b'x'; size]).unwrap();
    }
    let files = Files::new(directory.path(), FileOptions::default()).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    let mut held_files: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held_files.push(file);
    }
    for path in ["/big", "/small"] {
        let response = get(&files, path).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(response.headers()["retry-after"], "1");
    }
    // Two are enough, one for the file and one for the lookup of its siblings. A small file is
    // closed once it is read.
    held_files.truncate(held_files.len() - 2);
    assert_eq!(get(&files, "/small").await.status(), StatusCode::OK);
    // A cached open file is closed for one that is requested.
    assert_eq!(get(&files, "/kept").await.status(), StatusCode::OK);
    let big = get(&files, "/big").await;
    assert_eq!(big.status(), StatusCode::OK);
    assert_eq!(big.into_body().collect().await.unwrap().to_bytes().len(), 200_000);
}
