//! Conditional requests. The table of all conditions is in the unit tests of `conditional`.

use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::{Method, StatusCode};

use crate::site::{Site, pattern};

const LONG_AGO: &str = "Thu, 01 Jan 1970 00:00:01 GMT";

#[tokio::test]
async fn unchanged_files_are_not_sent() {
    let site = Site::new();
    site.write("small", "a").write("big", pattern(200_000));
    for path in ["/small", "/big"] {
        let first = site.get(path).await;
        let (etag, date) = (first.header(ETAG), first.header(LAST_MODIFIED));
        for fields in [(IF_NONE_MATCH, etag), (IF_NONE_MATCH, "*"), (IF_MODIFIED_SINCE, date)] {
            for method in [Method::GET, Method::HEAD] {
                let response = site.fetch(method, path, std::slice::from_ref(&fields)).await;
                assert_eq!(response.status, StatusCode::NOT_MODIFIED, "{fields:?}");
                assert_eq!((response.header(ETAG), response.header(LAST_MODIFIED)), (etag, date));
                assert!(response.body.is_empty());
                for absent in [CONTENT_LENGTH, CONTENT_TYPE] {
                    assert!(!response.headers.contains_key(&absent), "{absent}");
                }
            }
        }
    }
}

#[tokio::test]
async fn failed_preconditions_are_a_412() {
    let site = Site::new();
    site.write("a", "a");
    for fields in [(IF_MATCH, "\"other\""), (IF_UNMODIFIED_SINCE, LONG_AGO)] {
        let response = site.get_with("/a", &[fields.clone(), (RANGE, "bytes=0-0")]).await;
        assert_eq!(response.status, StatusCode::PRECONDITION_FAILED, "{fields:?}");
    }
    let etag = site.get("/a").await.header(ETAG).to_owned();
    for fields in [(IF_MATCH, etag.as_str()), (IF_MATCH, "*"), (IF_MODIFIED_SINCE, LONG_AGO)] {
        assert_eq!(site.get_with("/a", &[fields]).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn conditions_come_before_ranges() {
    let site = Site::new();
    site.write("a", "abc");
    let etag = site.get("/a").await.header(ETAG).to_owned();
    let fields = [(IF_NONE_MATCH, etag.as_str()), (RANGE, "bytes=0-0")];
    assert_eq!(site.get_with("/a", &fields).await.status, StatusCode::NOT_MODIFIED);
    let fields = [(IF_NONE_MATCH, "\"other\""), (RANGE, "bytes=0-0")];
    assert_eq!(site.get_with("/a", &fields).await.status, StatusCode::PARTIAL_CONTENT);
}

#[tokio::test]
async fn impossible_dates_are_omitted() {
    let site = Site::new();
    site.write("future", "f").write("past", "p");
    let hour = std::time::Duration::from_secs(3600);
    let set = |name, time| {
        let file = std::fs::File::options().write(true).open(site.path(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    set("future", std::time::SystemTime::now() + hour);
    set("past", std::time::UNIX_EPOCH - hour);
    for path in ["/future", "/past"] {
        let response = site.get(path).await;
        assert_eq!(response.status, StatusCode::OK);
        assert!(!response.headers.contains_key(LAST_MODIFIED), "{path}");
        let etag = response.header(ETAG);
        assert_eq!(
            site.get_with(path, &[(IF_NONE_MATCH, etag)]).await.status,
            StatusCode::NOT_MODIFIED
        );
    }
}

#[tokio::test]
async fn etags_distinguish_files() {
    let site = Site::with_zero_ttl();
    site.write("a", "same").write("b", "same");
    let modified = std::fs::metadata(site.path("a")).unwrap().modified().unwrap();
    let b = std::fs::File::options().write(true).open(site.path("b")).unwrap();
    b.set_modified(modified).unwrap();
    let first_tag = site.get("/a").await.header(ETAG).to_owned();
    assert_ne!(first_tag, site.get("/b").await.header(ETAG));
    assert_eq!(first_tag, site.get("/a").await.header(ETAG));
    site.write("a", "other");
    assert_ne!(first_tag, site.get("/a").await.header(ETAG));
}
