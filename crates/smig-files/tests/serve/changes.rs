//! Files that change while they are sent: the complete announced content, or an error.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, RANGE};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use smig_files::{FileBody, FileOptions};

use crate::site::{Site, pattern, read, request};

const FILE_BYTES: usize = 3_000_000;

/// Requests a file that is too large for memory, and reads the first bytes of the response.
async fn start_response(options: FileOptions) -> (Site, Bytes, FileBody) {
    let site = Site::with_options(options);
    site.write("file", pattern(FILE_BYTES));
    // An hour old, so that any change shows in its time however coarse the clock is.
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let file = File::options().write(true).open(site.path("file")).unwrap();
    file.set_modified(hour_ago).unwrap();
    let response = site.send(request(Method::GET, "/file", &[])).await;
    assert_eq!(response.headers()[CONTENT_LENGTH], "3000000");
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.len() < FILE_BYTES && first == pattern(FILE_BYTES)[..first.len()]);
    (site, first, body)
}

async fn read_rest(body: FileBody) -> io::Result<Bytes> {
    Ok(body.collect().await?.to_bytes())
}

fn assert_complete(first: &Bytes, rest: &Bytes) {
    let content = pattern(FILE_BYTES);
    assert_eq!(first.len() + rest.len(), FILE_BYTES);
    assert!(*rest == content[first.len()..]);
}

#[tokio::test]
async fn a_truncated_file_is_an_error() {
    for size in [0, 100, 65_536, FILE_BYTES as u64 / 2, FILE_BYTES as u64 - 1] {
        let (site, _, body) = start_response(FileOptions::default()).await;
        File::options().write(true).open(site.path("file")).unwrap().set_len(size).unwrap();
        let error = read_rest(body).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{size}: {error}");
    }
}

#[tokio::test]
async fn an_overwritten_file_is_an_error() {
    let (site, _, body) = start_response(FileOptions::default()).await;
    let mut file = File::options().write(true).open(site.path("file")).unwrap();
    file.write_all(b"other").unwrap();
    let error = read_rest(body).await.unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
}

#[tokio::test]
async fn a_deleted_file_is_sent_completely() {
    let (site, first, body) = start_response(FileOptions::default()).await;
    fs::remove_file(site.path("file")).unwrap();
    assert_complete(&first, &read_rest(body).await.unwrap());
    // A cached path may be out of date within its TTL, but an open file is checked again.
    assert_eq!(site.get("/file").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_replaced_file_is_sent_completely() {
    let (site, first, body) = start_response(FileOptions::default()).await;
    site.write("new", "new");
    fs::rename(site.path("new"), site.path("file")).unwrap();
    assert_complete(&first, &read_rest(body).await.unwrap());
    assert_eq!(site.get("/file").await.text(), "new");
}

#[tokio::test]
async fn a_file_that_grows_is_sent_at_its_announced_length() {
    let (site, first, body) = start_response(FileOptions::default()).await;
    let mut file = File::options().append(true).open(site.path("file")).unwrap();
    file.write_all(&pattern(100_000)).unwrap();
    assert_complete(&first, &read_rest(body).await.unwrap());
    assert_eq!(site.get("/file").await.body.len(), FILE_BYTES + 100_000);
}

#[tokio::test]
async fn a_file_that_becomes_unreadable_is_sent_completely() {
    use std::os::unix::fs::PermissionsExt;
    let (site, first, body) = start_response(FileOptions::default()).await;
    fs::set_permissions(site.path("file"), PermissionsExt::from_mode(0o000)).unwrap();
    assert_complete(&first, &read_rest(body).await.unwrap());
}

#[tokio::test]
async fn a_body_outlives_its_service() {
    let (site, first, body) = start_response(FileOptions::default()).await;
    drop(site);
    assert_complete(&first, &read_rest(body).await.unwrap());
}

/// A range of a truncated file is an error even if it still exists: the etag has changed.
#[tokio::test]
async fn truncation_is_an_error_in_a_multipart_response() {
    let site = Site::new();
    site.write("file", pattern(FILE_BYTES));
    let fields = [(RANGE, "bytes=0-199999,1000000-1199999")];
    let response = site.send(request(Method::GET, "/file", &fields)).await;
    assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    File::options().write(true).open(site.path("file")).unwrap().set_len(500_000).unwrap();
    assert_eq!(read_rest(body).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// An open file is checked at each request, so its bytes always match its headers.
#[tokio::test]
async fn an_open_file_is_checked_at_each_request() {
    let hour = Duration::from_secs(3600);
    let (site, _, _) =
        start_response(FileOptions { cache_ttl: hour, ..FileOptions::default() }).await;
    let response_before = site.get("/file").await;
    let mut content = pattern(FILE_BYTES);
    content[FILE_BYTES - 1] ^= 1;
    site.write("file", &content);
    let after = site.get("/file").await;
    assert!(after.body == content);
    assert_ne!(response_before.header(ETAG), after.header(ETAG));
}

/// A file that is replaced before each request: versions with different content have different etags.
#[tokio::test]
async fn each_version_of_a_replaced_file_has_its_own_etag() {
    let site = Site::with_zero_ttl();
    let mut tags = std::collections::HashMap::new();
    for round in 0..500_usize {
        let byte = b'a' + u8::try_from(round % 26).unwrap();
        let content = vec![byte; 1000 + round % 3];
        let temporary = format!("new{}", round % 2);
        site.write(&temporary, &content);
        fs::rename(site.path(&temporary), site.path("file")).unwrap();
        let response = read(site.send(request(Method::GET, "/file", &[])).await).await;
        assert!(response.body == content, "{round}");
        if let Some(known) = tags.insert(response.header(ETAG).to_owned(), response.body.clone()) {
            assert!(known == response.body, "{round}");
        }
    }
}
