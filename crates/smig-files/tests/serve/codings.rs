//! Precompressed siblings.

use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, RANGE, VARY,
};
use http::{HeaderName, Method, StatusCode};
use smig_files::{FileOptions, PrecompressedFiles};

use crate::site::{Site, pattern};

const ALL: (HeaderName, &str) = (ACCEPT_ENCODING, "gzip, deflate, br, zstd");

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
    for (accepted, coding, content) in table {
        let answer = site.get_with("/a.js", &[(ACCEPT_ENCODING, accepted)]).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, content));
        assert_eq!(answer.header(CONTENT_ENCODING), coding);
        assert_eq!(answer.header(CONTENT_TYPE), "text/javascript; charset=utf-8");
        assert_eq!(answer.header(CONTENT_LENGTH), content.len().to_string());
        assert_eq!(answer.header(VARY), "accept-encoding");
    }
    for accepted in ["identity", "deflate", "*;q=0"] {
        let answer = site.get_with("/a.js", &[(ACCEPT_ENCODING, accepted)]).await;
        assert!(answer.body == pattern(100_000));
        assert!(!answer.headers.contains_key(CONTENT_ENCODING));
        assert_eq!(answer.header(VARY), "accept-encoding");
    }
    let plain = site.get_with("/b.txt", &[ALL]).await;
    assert_eq!((plain.header(CONTENT_ENCODING), plain.header(VARY)), ("", ""));
    // A sibling requested by its own name is a file like any other.
    let sibling = site.get_with("/a.js.gz", &[ALL]).await;
    assert_eq!(sibling.header(CONTENT_TYPE), "application/gzip");
    assert_eq!((sibling.header(CONTENT_ENCODING), sibling.text()), ("", "gzip"));
}

#[tokio::test]
async fn each_coding_is_a_representation_of_its_own() {
    let site = Site::new();
    fill(&site);
    let mut tags = Vec::new();
    for accepted in ["br", "zstd", "gzip", "identity"] {
        let fields = [(ACCEPT_ENCODING, accepted)];
        let answer = site.get_with("/a.js", &fields).await;
        let tag = answer.header(ETAG).to_owned();
        let head = site.fetch(Method::HEAD, "/a.js", &fields).await;
        assert_eq!(head.headers, answer.headers);
        let fields = [(ACCEPT_ENCODING, accepted), (IF_NONE_MATCH, tag.as_str())];
        let same = site.get_with("/a.js", &fields).await;
        assert_eq!(same.status, StatusCode::NOT_MODIFIED);
        assert_eq!(same.header(VARY), "accept-encoding");
        tags.push(tag);
    }
    let identity = tags.pop().unwrap();
    for tag in tags {
        // The etag of one coding does not match another's content.
        assert_ne!(tag, identity);
        let fields = [(ACCEPT_ENCODING, "identity"), (IF_NONE_MATCH, tag.as_str())];
        assert_eq!(site.get_with("/a.js", &fields).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn ranges_apply_to_the_sibling() {
    let site = Site::new();
    fill(&site);
    let answer = site.get_with("/a.js", &[ALL, (RANGE, "bytes=1-3")]).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::PARTIAL_CONTENT, "rot"));
    assert_eq!(answer.header(CONTENT_RANGE), "bytes 1-3/6");
    assert_eq!((answer.header(CONTENT_ENCODING), answer.header(VARY)), ("br", "accept-encoding"));
    let unsatisfiable = site.get_with("/a.js", &[ALL, (RANGE, "bytes=6-")]).await;
    assert_eq!(unsatisfiable.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(unsatisfiable.header(VARY), "accept-encoding");
}

#[tokio::test]
async fn a_sibling_that_is_out_of_date_is_not_used() {
    let site = Site::with_zero_ttl();
    fill(&site);
    let now = std::fs::metadata(site.path("a.js")).unwrap().modified().unwrap();
    let set = |name, time| {
        let file = std::fs::File::options().write(true).open(site.path(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    set("a.js.br", now - Duration::from_secs(10));
    assert_eq!(site.get_with("/a.js", &[ALL]).await.header(CONTENT_ENCODING), "zstd");
    // Some compressors copy the time of the file.
    set("a.js.br", now);
    assert_eq!(site.get_with("/a.js", &[ALL]).await.header(CONTENT_ENCODING), "br");
    std::fs::remove_file(site.path("a.js.br")).unwrap();
    std::fs::create_dir(site.path("a.js.br")).unwrap();
    assert_eq!(site.get_with("/a.js", &[ALL]).await.header(CONTENT_ENCODING), "zstd");
    for name in ["a.js.zst", "a.js.gz"] {
        std::fs::remove_file(site.path(name)).unwrap();
    }
    assert_eq!(site.get_with("/a.js", &[ALL]).await.header(VARY), "");
}

#[tokio::test]
async fn siblings_of_the_index_and_without_a_file() {
    let site = Site::new();
    site.write("index.html", "plain").write("index.html.gz", "gz").write("only.txt.gz", "gz");
    let index = site.get_with("/", &[ALL]).await;
    assert_eq!((index.header(CONTENT_ENCODING), index.text()), ("gzip", "gz"));
    assert_eq!(index.header(CONTENT_TYPE), "text/html; charset=utf-8");
    assert_eq!(site.get_with("/only.txt", &[ALL]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn siblings_can_be_ignored() {
    let site = Site::with(FileOptions {
        precompressed: PrecompressedFiles::Ignore,
        ..FileOptions::default()
    });
    fill(&site);
    let answer = site.get_with("/a.js", &[ALL]).await;
    assert_eq!((answer.header(CONTENT_ENCODING), answer.header(VARY)), ("", ""));
}
