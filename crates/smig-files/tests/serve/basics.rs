//! Methods, statuses, headers, directories.

use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED,
    LOCATION, RANGE, RETRY_AFTER, VARY,
};
use http::{HeaderValue, Method, StatusCode};
use smig_files::{FileOptions, Files};
use tower_service::Service as _;

use crate::site::{Site, pattern, read, request};

#[tokio::test]
async fn a_file_has_all_its_headers() {
    let site = Site::new();
    site.write("a.txt", "hello");
    let modified = std::fs::metadata(site.path("a.txt")).unwrap().modified().unwrap();
    let response = site.get("/a.txt").await;
    assert_eq!((response.status, response.text()), (StatusCode::OK, "hello"));
    assert_eq!(response.header(CONTENT_TYPE), "text/plain; charset=utf-8");
    assert_eq!(response.header(CONTENT_LENGTH), "5");
    assert_eq!(response.header(ACCEPT_RANGES), "bytes");
    assert_eq!(response.header(LAST_MODIFIED), httpdate::fmt_http_date(modified));
    let etag = response.header(ETAG);
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{etag}");
    for absent in [DATE, CACHE_CONTROL, VARY] {
        assert!(!response.headers.contains_key(&absent), "{absent}");
    }
}

#[tokio::test]
async fn files_of_every_size_are_complete() {
    const KIB: usize = 1024;
    let sizes = [
        0,
        1,
        KIB,
        16 * KIB,
        16 * KIB + 1,
        64 * KIB,
        64 * KIB + 1,
        128 * KIB,
        128 * KIB + 1,
        1100 * KIB,
    ];
    let without_memory = FileOptions { cache_memory_bytes: 0, ..FileOptions::default() };
    for site in [Site::new(), Site::with_zero_ttl(), Site::with_options(without_memory)] {
        for size in sizes {
            let content = pattern(size);
            site.write(&format!("{size}"), &content);
            // From the disk, from the cache, and by another spelling (digits are %30 to %39).
            for path in [format!("/{size}"), format!("/{size}"), format!("/%3{size}")] {
                let response = site.get(&path).await;
                assert_eq!(response.header(CONTENT_LENGTH), size.to_string(), "{path}");
                assert!(response.body == content, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn head_equals_get() {
    let site = Site::new();
    site.write("small.html", "<p>").write("big.bin", pattern(200_000)).write("empty", "");
    for path in ["/small.html", "/big.bin", "/empty", "/missing", "/.hidden"] {
        let get = site.get(path).await;
        let head = site.fetch(Method::HEAD, path, &[]).await;
        assert_eq!((head.status, &head.headers), (get.status, &get.headers), "{path}");
        assert!(head.body.is_empty());
    }
}

#[tokio::test]
async fn only_get_head_and_options_are_supported() {
    let site = Site::new();
    site.write("a", "a");
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::CONNECT, Method::TRACE] {
        let response = site.fetch(method, "/a", &[]).await;
        assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.header(ALLOW), "GET, HEAD, OPTIONS");
    }
    for path in ["/a", "/missing", "*"] {
        let response = site.fetch(Method::OPTIONS, path, &[]).await;
        assert_eq!(response.status, StatusCode::NO_CONTENT);
        assert_eq!(response.header(ALLOW), "GET, HEAD, OPTIONS");
        assert!(response.body.is_empty() && !response.headers.contains_key(CONTENT_LENGTH));
    }
}

#[tokio::test]
async fn directories_serve_their_index() {
    let site = Site::new();
    site.write("index.html", "top").write("docs/index.html", "docs").write("bare/a", "a");
    std::fs::create_dir_all(site.path("odd/index.html")).unwrap();
    assert_eq!(site.get("/").await.text(), "top");
    let docs = site.get("/docs/").await;
    assert_eq!((docs.status, docs.text()), (StatusCode::OK, "docs"));
    assert_eq!(docs.header(CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(site.get("/docs/index.html").await.text(), "docs");
    for path in ["/bare/", "/odd/"] {
        assert_eq!(site.get(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/missing/", "/docs/index.html/", "/docs/index.html/x"] {
        assert_eq!(site.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn directories_without_a_slash_are_redirected() {
    let site = Site::new();
    site.write("docs/a b/x", "x");
    let table = [
        ("/docs", "/docs/"),
        ("/docs?q=1&r=//evil.example", "/docs/?q=1&r=//evil.example"),
        ("/docs?", "/docs/?"),
        ("/docs/a%20b", "/docs/a%20b/"),
        ("/%64ocs", "/%64ocs/"),
    ];
    for (path, location) in table {
        let response = site.get(path).await;
        assert_eq!(response.status, StatusCode::PERMANENT_REDIRECT, "{path}");
        assert_eq!(response.header(LOCATION), location);
        assert_ne!(response.header(CONTENT_LENGTH), "");
    }
    // Even if there is such a directory, no path redirects a browser to another host.
    std::fs::create_dir_all(site.path("evil.example/%2e%2e")).unwrap();
    for path in ["//evil.example", "//evil.example/%2e%2e", "/%2Fevil.example", "/%5cevil.example"]
    {
        let response = site.get(path).await;
        assert!(response.status.is_client_error(), "{path}: {}", response.status);
        assert!(!response.headers.contains_key(LOCATION));
    }
}

#[tokio::test]
async fn the_index_can_have_another_name_or_none() {
    let site = Site::with_options(FileOptions {
        index_file: Some("start.txt".to_owned()),
        ..FileOptions::default()
    });
    site.write("start.txt", "go").write("index.html", "no");
    assert_eq!(site.get("/").await.text(), "go");
    let without_index =
        Site::with_options(FileOptions { index_file: None, ..FileOptions::default() });
    without_index.write("index.html", "no");
    assert_eq!(without_index.get("/").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn cache_control_is_sent_with_files() {
    let value = HeaderValue::from_static("public, max-age=60");
    let site =
        Site::with_options(FileOptions { cache_control: Some(value), ..FileOptions::default() });
    site.write("a", "a");
    let response = site.get("/a").await;
    assert_eq!(response.header(CACHE_CONTROL), "public, max-age=60");
    let same = site.get_with("/a", &[(http::header::IF_NONE_MATCH, response.header(ETAG))]).await;
    assert_eq!(same.header(CACHE_CONTROL), "public, max-age=60");
    assert_eq!(site.get("/missing").await.header(CACHE_CONTROL), "");
}

#[tokio::test]
async fn unreadable_files_are_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    site.write("locked", "x");
    std::fs::set_permissions(site.path("locked"), PermissionsExt::from_mode(0o000)).unwrap();
    // Root may read everything.
    let expected = match std::fs::read(site.path("locked")) {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::FORBIDDEN,
    };
    let response = site.get("/locked").await;
    assert_eq!(response.status, expected);
    assert!(!response.headers.contains_key(RETRY_AFTER));
}

/// The bounds that servers and routers require of a service and its body.
#[test]
fn files_has_the_bounds_of_a_service() {
    fn assert_service_bounds<S, B>(_: &S)
    where
        S: tower_service::Service<http::Request<()>, Response = http::Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + Unpin + 'static,
        B: http_body::Body<Data = bytes::Bytes, Error = std::io::Error> + Send + Unpin + 'static,
    {
    }
    assert_service_bounds(&Site::new().files);
}

#[test]
fn the_error_names_the_root() {
    let error = Files::new("/nonexistent/directory", FileOptions::default()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/nonexistent/directory"), "{error}");
}

/// Without a runtime there are no blocking threads, so the calling thread reads.
#[test]
fn files_are_served_without_a_runtime() {
    let site = Site::new();
    site.write("a", "a").write("big", pattern(300_000));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    for (path, size) in [("/a", 1), ("/big", 300_000)] {
        let future = std::pin::pin!(site.get(path));
        match future.poll(&mut context) {
            std::task::Poll::Ready(response) => assert_eq!(response.body.len(), size),
            std::task::Poll::Pending => panic!("nothing is offloaded"),
        }
    }
}

#[tokio::test]
async fn shared_headers_are_those_of_the_head() {
    let site = Site::new();
    site.write("a.txt", "text").write("big", pattern(1 << 20)).write("empty", "");
    for (path, is_shared) in [("/a.txt", true), ("/big", true), ("/empty", false), ("/none", false)]
    {
        let expected = site.get(path).await;
        let mut files = site.files.clone().with_shared_headers();
        let response = files.call(request(Method::GET, path, &[])).await.unwrap();
        assert_eq!(response.status(), expected.status, "{path}");
        match response.body().shared_headers() {
            Some(headers) => {
                assert!(is_shared && response.headers().is_empty(), "{path}");
                assert_eq!(**headers, expected.headers, "{path}");
            }
            None => {
                assert!(!is_shared, "{path}");
                assert_eq!(*response.headers(), expected.headers, "{path}");
            }
        }
        assert_eq!(read(response).await.body, expected.body, "{path}");
        // A part of it has fields of its own, and HEAD has no body.
        for (method, fields) in [(Method::HEAD, &[][..]), (Method::GET, &[(RANGE, "bytes=0-0")])] {
            let expected = site.fetch(method.clone(), path, fields).await;
            let response = files.call(request(method, path, fields)).await.unwrap();
            assert!(response.body().shared_headers().is_none(), "{path}");
            assert_eq!(*response.headers(), expected.headers, "{path}");
        }
    }
}
