//! Files of any size, in bounded memory, from the page cache and from the disk.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{Method, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::site::{Site, pattern, request};

const MIB: u64 = 1 << 20;
const HUGE_FILE_BYTES: u64 = 10 << 30;

#[tokio::test]
async fn ranges_of_a_huge_file_are_sent() {
    let site = Site::new();
    let mut file = File::create(site.path("huge")).unwrap();
    file.write_all(b"first").unwrap();
    file.set_len(HUGE_FILE_BYTES).unwrap();
    file.seek(SeekFrom::End(-4)).unwrap();
    file.write_all(b"last").unwrap();
    let head = site.fetch(Method::HEAD, "/huge", &[]).await;
    assert_eq!(head.header(CONTENT_LENGTH), HUGE_FILE_BYTES.to_string());

    let first = site.get_with("/huge", &[(RANGE, &format!("bytes=0-{}", MIB - 1))]).await;
    assert_eq!(first.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(first.header(CONTENT_RANGE), format!("bytes 0-{}/{HUGE_FILE_BYTES}", MIB - 1));
    assert_eq!((first.body.len() as u64, &first.body[..6]), (MIB, &b"first\0"[..]));

    let last = site.get_with("/huge", &[(RANGE, &format!("bytes=-{MIB}"))]).await;
    assert_eq!(
        last.header(CONTENT_RANGE),
        format!("bytes {}-{}/{HUGE_FILE_BYTES}", HUGE_FILE_BYTES - MIB, HUGE_FILE_BYTES - 1)
    );
    assert!(last.body.len() as u64 == MIB && last.body.ends_with(b"\0last"));

    let both_ranges = format!("bytes=0-4,{}-", HUGE_FILE_BYTES - 4);
    let both_response = site.get_with("/huge", &[(RANGE, &both_ranges)]).await;
    assert!(both_response.body.windows(5).any(|window| window == b"first"));
    assert!(both_response.body.windows(4).any(|window| window == b"last"));
}

/// Nothing is read before the body is polled, and a frame has at most one chunk.
#[tokio::test]
async fn a_huge_file_is_read_in_chunks() {
    let site = Site::new();
    File::create(site.path("huge")).unwrap().set_len(HUGE_FILE_BYTES).unwrap();
    let mut bodies = Vec::new();
    for _ in 0..100 {
        let mut body = site.send(request(Method::GET, "/huge", &[])).await.into_body();
        assert_eq!(body.size_hint().exact(), Some(HUGE_FILE_BYTES));
        let frame = body.frame().await.unwrap().unwrap();
        let length = frame.data_ref().unwrap().len() as u64;
        assert!((1..=64 << 10).contains(&length), "{length}");
        assert_eq!(body.size_hint().exact(), Some(HUGE_FILE_BYTES - length));
        bodies.push(body);
    }
}

/// The file is dropped from the page cache, where the file system allows it, so that reads wait for
/// the disk. The expected result does not depend on that.
#[tokio::test]
async fn files_are_read_from_the_disk() {
    let site = Site::new();
    for size in [1_000, 200_000, 9_000_000] {
        let name = format!("{size}");
        let content = pattern(size);
        site.write(&name, &content);
        let file = File::open(site.path(&name)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let response = site.get(&format!("/{name}")).await;
        assert!(response.body == content, "{size}");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let second_half_range = format!("bytes={}-", size / 2);
        let half = site.get_with(&format!("/{name}"), &[(RANGE, &second_half_range)]).await;
        assert!(half.body == content[size / 2..], "{size}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_responses_are_complete() {
    let site = std::sync::Arc::new(Site::new());
    let content = pattern(1_000_000);
    site.write("big", &content).write("small", &content[..1000]);
    let tasks: Vec<_> = (0..64)
        .map(|index: usize| {
            let site = std::sync::Arc::clone(&site);
            tokio::spawn(async move {
                let path = if index.is_multiple_of(2) { "/big" } else { "/small" };
                site.get(path).await.body
            })
        })
        .collect();
    for (index, task) in tasks.into_iter().enumerate() {
        let expected = if index.is_multiple_of(2) { &content[..] } else { &content[..1000] };
        assert!(task.await.unwrap() == expected);
    }
}
