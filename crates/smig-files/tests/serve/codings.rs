//! Precompressed siblings.

use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, RANGE, VARY,
};
use http::{HeaderName, Method, StatusCode};
use smig_files::{FileOptions, PrecompressedFiles};

use crate::site::{Site, pattern};

const ACCEPT_ALL_CODINGS: (HeaderName, &str) = (ACCEPT_ENCODING, "gzip, deflate, br, zstd");

fn fill(site: &Site) {
    site.write("a.js", pattern(100_000)).write("a.js.br", "brotli");
    site.write("a.js.zst", "zstandard").write("a.js.gz", "gzip").write("b.txt", "plain");
}

#[tokio::test]
async fn the_preferred_sibling_is_sent() {
    let site = Site::new();
    fill(&site);
    let table = [
        ("gzip, deflate, br, zstd", "br", "brotli"),
        ("gzip, zstd", "zstd", "zstandard"),
        ("br;q=0.1, gzip;q=0.9", "gzip", "gzip"),
    ];
    for (accept_encoding, coding, content) in table {
        let response = site.get_with("/a.js", &[(ACCEPT_ENCODING, accept_encoding)]).await;
        assert_eq!((response.status, response.text()), (StatusCode::OK, content));
        assert_eq!(response.header(CONTENT_ENCODING), coding);
        assert_eq!(response.header(CONTENT_TYPE), "text/javascript; charset=utf-8");
        assert_eq!(response.header(CONTENT_LENGTH), content.len().to_string());
        assert_eq!(response.header(VARY), "accept-encoding");
    }
    for accepted in ["identity", "deflate", "*;q=0"] {
        let response = site.get_with("/a.js", &[(ACCEPT_ENCODING, accepted)]).await;
        assert!(response.body == pattern(100_000));
        assert!(!response.headers.contains_key(CONTENT_ENCODING));
        assert_eq!(response.header(VARY), "accept-encoding");
    }
    let plain = site.get_with("/b.txt", &[ACCEPT_ALL_CODINGS]).await;
    assert_eq!((plain.header(CONTENT_ENCODING), plain.header(VARY)), ("", ""));
    // A sibling requested by its own name is a file like any other.
    let sibling = site.get_with("/a.js.gz", &[ACCEPT_ALL_CODINGS]).await;
    assert_eq!(sibling.header(CONTENT_TYPE), "application/gzip");
    assert_eq!((sibling.header(CONTENT_ENCODING), sibling.text()), ("", "gzip"));
}

#[tokio::test]
async fn each_coding_is_a_representation_of_its_own() {
    let site = Site::new();
    fill(&site);
    let mut tags = Vec::new();
    for accept_encoding in ["br", "zstd", "gzip", "identity"] {
        let fields = [(ACCEPT_ENCODING, accept_encoding)];
        let response = site.get_with("/a.js", &fields).await;
        let tag = response.header(ETAG).to_owned();
        let head = site.fetch(Method::HEAD, "/a.js", &fields).await;
        assert_eq!(head.headers, response.headers);
        let fields = [(ACCEPT_ENCODING, accept_encoding), (IF_NONE_MATCH, tag.as_str())];
        let same = site.get_with("/a.js", &fields).await;
        assert_eq!(same.status, StatusCode::NOT_MODIFIED);
        assert_eq!(same.header(VARY), "accept-encoding");
        tags.push(tag);
    }
    let identity_tag = tags.pop().unwrap();
    for tag in tags {
        // The etag of one coding does not match another's content.
        assert_ne!(tag, identity_tag);
        let fields = [(ACCEPT_ENCODING, "identity"), (IF_NONE_MATCH, tag.as_str())];
        assert_eq!(site.get_with("/a.js", &fields).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn ranges_apply_to_the_sibling() {
    let site = Site::new();
    fill(&site);
    let response = site.get_with("/a.js", &[ACCEPT_ALL_CODINGS, (RANGE, "bytes=1-3")]).await;
    assert_eq!((response.status, response.text()), (StatusCode::PARTIAL_CONTENT, "rot"));
    assert_eq!(response.header(CONTENT_RANGE), "bytes 1-3/6");
    assert_eq!(
        (response.header(CONTENT_ENCODING), response.header(VARY)),
        ("br", "accept-encoding")
    );
    let unsatisfiable = site.get_with("/a.js", &[ACCEPT_ALL_CODINGS, (RANGE, "bytes=6-")]).await;
    assert_eq!(unsatisfiable.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(unsatisfiable.header(VARY), "accept-encoding");
}

#[tokio::test]
async fn a_sibling_that_is_out_of_date_is_not_used() {
    let site = Site::with_zero_ttl();
    fill(&site);
    let modified = std::fs::metadata(site.path("a.js")).unwrap().modified().unwrap();
    let set_modified = |name, time| {
        let file = std::fs::File::options().write(true).open(site.path(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    set_modified("a.js.br", modified - Duration::from_secs(10));
    assert_eq!(
        site.get_with("/a.js", &[ACCEPT_ALL_CODINGS]).await.header(CONTENT_ENCODING),
        "zstd"
    );
    // Some compressors copy the time of the file.
    set_modified("a.js.br", modified);
    assert_eq!(site.get_with("/a.js", &[ACCEPT_ALL_CODINGS]).await.header(CONTENT_ENCODING), "br");
    std::fs::remove_file(site.path("a.js.br")).unwrap();
    std::fs::create_dir(site.path("a.js.br")).unwrap();
    assert_eq!(
        site.get_with("/a.js", &[ACCEPT_ALL_CODINGS]).await.header(CONTENT_ENCODING),
        "zstd"
    );
    for name in ["a.js.zst", "a.js.gz"] {
        std::fs::remove_file(site.path(name)).unwrap();
    }
    assert_eq!(site.get_with("/a.js", &[ACCEPT_ALL_CODINGS]).await.header(VARY), "");
}

#[tokio::test]
async fn an_index_has_siblings_and_a_sibling_without_its_file_is_not_served() {
    let site = Site::new();
    site.write("index.html", "plain").write("index.html.gz", "gz").write("only.txt.gz", "gz");
    let index = site.get_with("/", &[ACCEPT_ALL_CODINGS]).await;
    assert_eq!((index.header(CONTENT_ENCODING), index.text()), ("gzip", "gz"));
    assert_eq!(index.header(CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(
        site.get_with("/only.txt", &[ACCEPT_ALL_CODINGS]).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn siblings_can_be_ignored() {
    let site = Site::with_options(FileOptions {
        precompressed_files: PrecompressedFiles::Ignore,
        ..FileOptions::default()
    });
    fill(&site);
    let response = site.get_with("/a.js", &[ACCEPT_ALL_CODINGS]).await;
    assert_eq!((response.header(CONTENT_ENCODING), response.header(VARY)), ("", ""));
}
