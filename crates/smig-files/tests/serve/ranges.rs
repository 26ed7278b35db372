//! Range and If-Range.

use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{Method, StatusCode};

use crate::site::{CollectedResponse, Site, pattern};

/// A file that is cached in memory, and one that is read for each response.
const FILES: [(&str, usize); 2] = [("/small.txt", 10_000), ("/big.txt", 300_000)];

fn create_site() -> Site {
    let site = Site::new();
    for (path, size) in FILES {
        site.write(&path[1..], pattern(size));
    }
    site
}

#[tokio::test]
async fn a_range_is_sent_as_206() {
    let site = create_site();
    for (path, size) in FILES {
        let content = pattern(size);
        let table = [
            ("bytes=0-0".to_owned(), 0..1),
            ("bytes=0-".to_owned(), 0..size),
            ("bytes=5-9".to_owned(), 5..10),
            ("bytes=-7".to_owned(), size - 7..size),
            (format!("bytes={}-", size - 1), size - 1..size),
            (format!("bytes=9000-{size}"), 9_000..size),
            ("bytes=3-4,999999-".to_owned(), 3..5),
        ];
        for (range, expected) in table {
            let response = site.get_with(path, &[(RANGE, &range)]).await;
            assert_eq!(response.status, StatusCode::PARTIAL_CONTENT, "{range}");
            assert_eq!(response.header(CONTENT_LENGTH), expected.len().to_string());
            let content_range = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
            assert_eq!(response.header(CONTENT_RANGE), content_range);
            assert_eq!(response.header(CONTENT_TYPE), "text/plain; charset=utf-8");
            assert_ne!(response.header(ETAG), "");
            assert!(response.body == content[expected], "{range}");
        }
    }
}

#[tokio::test]
async fn several_ranges_are_sent_as_multipart() {
    let site = create_site();
    for (path, size) in FILES {
        let content = pattern(size);
        let range = "bytes=100-199, 0-0, -70000, 5000-8999";
        let range = if size < 70_000 { "bytes=100-199, 0-0, -7, 5000-8999" } else { range };
        let response = site.get_with(path, &[(RANGE, range)]).await;
        assert_eq!(response.status, StatusCode::PARTIAL_CONTENT);
        assert!(!response.headers.contains_key(CONTENT_RANGE));
        assert_eq!(response.header(CONTENT_LENGTH), response.body.len().to_string());
        let suffix = if size < 70_000 { 7 } else { 70_000 };
        let expected = [100..200, 0..1, size - suffix..size, 5_000..9_000];
        let parts = parse_multipart(&response);
        assert_eq!(parts.len(), expected.len());
        for ((head, body), expected) in parts.iter().zip(expected) {
            let content_range =
                format!("content-range: bytes {}-{}/{size}", expected.start, expected.end - 1);
            assert!(head.contains(&content_range), "{head}");
            assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
            assert!(*body == content[expected]);
        }
    }
}

/// Parses a multipart body (RFC 2046 section 5.1.1). The content has every byte value, so the
/// lengths are taken from content-range instead of searching for boundaries.
fn parse_multipart(response: &CollectedResponse) -> Vec<(String, Vec<u8>)> {
    let content_type = response.header(CONTENT_TYPE);
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let delimiter = format!("\r\n--{boundary}");
    let mut rest = &response.body[..];
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(delimiter.as_bytes()).expect("a delimiter");
        if let Some(end) = rest.strip_prefix(b"--\r\n") {
            assert!(end.is_empty());
            return parts;
        }
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&rest[2..end]).unwrap().to_owned();
        let (_, range) = head.split_once("bytes ").unwrap();
        let (first, last) = range.split_once('/').unwrap().0.split_once('-').unwrap();
        let length = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        let (body, after) = rest[end + 4..].split_at(length);
        parts.push((head, body.to_vec()));
        rest = after;
    }
}

#[tokio::test]
async fn unsatisfiable_ranges_are_a_416() {
    let site = create_site();
    for (path, size) in FILES {
        for range in [format!("bytes={size}-"), "bytes=-0".to_owned()] {
            let response = site.get_with(path, &[(RANGE, &range)]).await;
            assert_eq!(response.status, StatusCode::RANGE_NOT_SATISFIABLE, "{range}");
            assert_eq!(response.header(CONTENT_RANGE), format!("bytes */{size}"));
            assert_eq!(response.header(CONTENT_LENGTH), response.body.len().to_string());
        }
    }
}

#[tokio::test]
async fn invalid_ranges_are_ignored() {
    let site = create_site();
    site.write("empty", "");
    for range in ["bytes=5-2", "lines=0-1", "bytes=", "bytes=0-8000,0-8000,0-8000,0-290000"] {
        let response = site.get_with("/big.txt", &[(RANGE, range)]).await;
        assert_eq!((response.status, response.body.len()), (StatusCode::OK, 300_000), "{range}");
    }
    let empty = site.get_with("/empty", &[(RANGE, "bytes=0-")]).await;
    assert_eq!((empty.status, empty.header(CONTENT_LENGTH)), (StatusCode::OK, "0"));
    let head = site.fetch(Method::HEAD, "/big.txt", &[(RANGE, "bytes=0-0")]).await;
    assert_eq!((head.status, head.header(CONTENT_LENGTH)), (StatusCode::OK, "300000"));
}

#[tokio::test]
async fn if_range_must_match() {
    let site = create_site();
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = std::fs::File::options().write(true).open(site.path("big.txt")).unwrap();
    file.set_modified(hour_ago).unwrap();
    let full_response = site.get("/big.txt").await;
    let etag = full_response.header(ETAG);
    let weak = format!("W/{etag}");
    let table = [
        (etag, StatusCode::PARTIAL_CONTENT),
        (weak.as_str(), StatusCode::OK),
        ("\"other\"", StatusCode::OK),
        ("Thu, 01 Jan 1970 00:00:00 GMT", StatusCode::OK),
        (full_response.header(LAST_MODIFIED), StatusCode::PARTIAL_CONTENT),
    ];
    for (value, expected) in table {
        let fields = [(RANGE, "bytes=0-9"), (IF_RANGE, value)];
        assert_eq!(site.get_with("/big.txt", &fields).await.status, expected, "{value}");
    }
}
