//! Files that change while they are sent: the whole announced content, or an error.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, RANGE};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use smig_files::{FileBody, Options};

use crate::site::{Site, pattern, read, request};

const SIZE: usize = 3_000_000;

/// A file that is too big for memory, and a response for it of which the first bytes are read.
async fn begun(options: Options) -> (Site, Bytes, FileBody) {
    let site = Site::with(options);
    site.write("file", pattern(SIZE));
    // An hour old, so that any change shows in its time however coarse the clock is.
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let file = File::options().write(true).open(site.path("file")).unwrap();
    file.set_modified(hour_ago).unwrap();
    let response = site.send(request(Method::GET, "/file", &[])).await;
    assert_eq!(response.headers()[CONTENT_LENGTH], "3000000");
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.len() < SIZE && first == pattern(SIZE)[..first.len()]);
    (site, first, body)
}

async fn rest(body: FileBody) -> io::Result<Bytes> {
    Ok(body.collect().await?.to_bytes())
}

fn assert_complete(first: &Bytes, rest: &Bytes) {
    let content = pattern(SIZE);
    assert_eq!(first.len() + rest.len(), SIZE);
    assert!(*rest == content[first.len()..]);
}

#[tokio::test]
async fn it_shrinks() {
    for left in [0, 100, 65_536, SIZE as u64 / 2, SIZE as u64 - 1] {
        let (site, _, body) = begun(Options::default()).await;
        File::options().write(true).open(site.path("file")).unwrap().set_len(left).unwrap();
        let error = rest(body).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{left}: {error}");
    }
}

#[tokio::test]
async fn it_is_overwritten() {
    let (site, _, body) = begun(Options::default()).await;
    let mut file = File::options().write(true).open(site.path("file")).unwrap();
    file.write_all(b"other").unwrap();
    let error = rest(body).await.unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
}

#[tokio::test]
async fn it_vanishes() {
    let (site, first, body) = begun(Options::default()).await;
    fs::remove_file(site.path("file")).unwrap();
    assert_complete(&first, &rest(body).await.unwrap());
    // Nothing is promised for a request that comes within the validity, but a file that is kept
    // open is looked at again.
    assert_eq!(site.get("/file").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn it_is_replaced() {
    let (site, first, body) = begun(Options::default()).await;
    site.write("new", "new");
    fs::rename(site.path("new"), site.path("file")).unwrap();
    assert_complete(&first, &rest(body).await.unwrap());
    assert_eq!(site.get("/file").await.text(), "new");
}

#[tokio::test]
async fn it_grows() {
    let (site, first, body) = begun(Options::default()).await;
    let mut file = File::options().append(true).open(site.path("file")).unwrap();
    file.write_all(&pattern(100_000)).unwrap();
    assert_complete(&first, &rest(body).await.unwrap());
    assert_eq!(site.get("/file").await.body.len(), SIZE + 100_000);
}

#[tokio::test]
async fn it_loses_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let (site, first, body) = begun(Options::default()).await;
    fs::set_permissions(site.path("file"), PermissionsExt::from_mode(0o000)).unwrap();
    assert_complete(&first, &rest(body).await.unwrap());
}

#[tokio::test]
async fn the_service_is_dropped() {
    let (site, first, body) = begun(Options::default()).await;
    drop(site);
    assert_complete(&first, &rest(body).await.unwrap());
}

/// A range of what is left of a file that shrank is as wrong as the whole: it has another tag.
#[tokio::test]
async fn it_shrinks_behind_a_range() {
    let site = Site::new();
    site.write("file", pattern(SIZE));
    let fields = [(RANGE, "bytes=0-199999,1000000-1199999")];
    let response = site.send(request(Method::GET, "/file", &fields)).await;
    assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    File::options().write(true).open(site.path("file")).unwrap().set_len(500_000).unwrap();
    assert_eq!(rest(body).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// A big file is looked at at each request, so its bytes always fit its headers.
#[tokio::test]
async fn it_changes_between_requests_within_the_validity() {
    let hour = Duration::from_secs(3600);
    let (site, _, _) = begun(Options { validity: hour, ..Options::default() }).await;
    let before = site.get("/file").await;
    let mut content = pattern(SIZE);
    content[SIZE - 1] ^= 1;
    site.write("file", &content);
    let after = site.get("/file").await;
    assert!(after.body == content);
    assert_ne!(before.header(ETAG), after.header(ETAG));
}

/// Writers in a hurry: whatever is answered is one version, whole, under its own tag.
#[tokio::test]
async fn small_files_are_never_mixed() {
    let site = Site::watchful();
    let mut tags = std::collections::HashMap::new();
    for round in 0..500_usize {
        let byte = b'a' + u8::try_from(round % 26).unwrap();
        let content = vec![byte; 1000 + round % 3];
        let temporary = format!("new{}", round % 2);
        site.write(&temporary, &content);
        fs::rename(site.path(&temporary), site.path("file")).unwrap();
        let answer = read(site.send(request(Method::GET, "/file", &[])).await).await;
        assert!(answer.body == content, "{round}");
        if let Some(known) = tags.insert(answer.header(ETAG).to_owned(), answer.body.clone()) {
            assert!(known == answer.body, "{round}");
        }
    }
}
