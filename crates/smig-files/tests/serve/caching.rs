//! What is remembered, for how long, and how much of it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use http::header::ETAG;
use smig_files::Options;

use crate::site::{Site, pattern};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_small_file_is_believed_for_the_validity() {
    let site = Site::with(Options { validity: HOUR, ..Options::default() });
    site.write("a", "old");
    assert_eq!(site.get("/a").await.text(), "old");
    site.write("a", "new");
    assert_eq!(site.get("/a").await.text(), "old");
    assert_eq!(site.get("/%61").await.text(), "old");
    // What was not there is not remembered.
    assert_eq!(site.get("/b").await.status, StatusCode::NOT_FOUND);
    site.write("b", "now");
    assert_eq!(site.get("/b").await.text(), "now");
}

#[tokio::test]
async fn every_change_is_seen_after_the_validity() {
    let site = Site::with(Options { validity: Duration::from_millis(20), ..Options::default() });
    site.write("a", "old");
    site.get("/a").await;
    let changes: [(&dyn Fn(), &str); 4] = [
        (&|| fs::write(site.path("a"), "new").unwrap(), "new"),
        // Of the same size, in the same tick of the clock perhaps.
        (&|| fs::write(site.path("a"), "two").unwrap(), "two"),
        (
            &|| {
                site.write("b", "three");
                fs::rename(site.path("b"), site.path("a")).unwrap();
            },
            "three",
        ),
        (&|| fs::remove_file(site.path("a")).unwrap(), "404: file not found\n"),
    ];
    for (change, expected) in changes {
        change();
        // Until it is seen; if it never is, this never ends.
        while site.get("/a").await.text() != expected {
            tokio::task::yield_now().await;
        }
        assert_eq!(site.get("/a").await.text(), expected);
    }
}

#[tokio::test]
async fn without_validity_each_change_is_seen_at_once() {
    let site = Site::watchful();
    for round in 0..300 {
        let content = format!("{:04}", round * 7);
        let mut file = File::create(site.path("a")).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        assert_eq!(site.get("/a").await.text(), content);
    }
    fs::remove_file(site.path("a")).unwrap();
    assert_eq!(site.get("/a").await.status, StatusCode::NOT_FOUND);
    fs::create_dir(site.path("a")).unwrap();
    assert_eq!(site.get("/a").await.status, StatusCode::PERMANENT_REDIRECT);
}

#[tokio::test]
async fn siblings_come_and_go() {
    let site = Site::watchful();
    let fields = [(http::header::ACCEPT_ENCODING, "gzip")];
    site.write("a", "plain");
    let before = site.get_with("/a", &fields).await;
    site.write("a.gz", "gz");
    assert_eq!(site.get_with("/a", &fields).await.text(), "gz");
    fs::remove_file(site.path("a.gz")).unwrap();
    let after = site.get_with("/a", &fields).await;
    assert_eq!(before.header(ETAG), after.header(ETAG));
    assert_eq!(before.headers, after.headers);
}

/// Files below `folder` that this process has open, other than folders.
fn open_below(folder: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let targets = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.starts_with(folder) && target != folder).count()
}

#[tokio::test]
async fn open_files_are_bounded() {
    let options = Options { max_open_files: 4, validity: HOUR, ..Options::default() };
    let site = Site::with(options);
    let folder = fs::canonicalize(site.path("")).unwrap();
    for round in 0..3 {
        for name in 0..20 {
            site.write(&format!("{name}"), pattern(200_000 + name));
            let answer = site.get(&format!("/{name}")).await;
            assert!(answer.body == pattern(200_000 + name), "{round}");
        }
        assert_eq!(open_below(&folder), 4);
    }
    drop(site);
    assert_eq!(open_below(&folder), 0);
}

#[tokio::test]
async fn small_files_are_not_kept_open() {
    let site = Site::new();
    let folder = fs::canonicalize(site.path("")).unwrap();
    site.write("a", "a");
    site.get("/a").await;
    assert_eq!(open_below(&folder), 0);
}

/// With a validity of an hour, what is remembered shows by being out of date.
async fn remembered(site: &Site, names: std::ops::Range<usize>) -> usize {
    for name in names.clone() {
        site.write(&format!("{name}"), vec![b'a'; 1000]);
        site.get(&format!("/{name}")).await;
    }
    let mut count = 0;
    for name in names.rev() {
        site.write(&format!("{name}"), vec![b'b'; 1000]);
        count += usize::from(site.get(&format!("/{name}")).await.body[0] == b'a');
    }
    count
}

#[tokio::test]
async fn entries_are_bounded() {
    let options = Options { max_entries: 10, validity: HOUR, ..Options::default() };
    let count = remembered(&Site::with(options), 0..50).await;
    assert!((1..=10).contains(&count), "{count}");
    let none = Options { max_entries: 0, validity: HOUR, ..Options::default() };
    assert_eq!(remembered(&Site::with(none), 0..5).await, 0);
    let all = Options { validity: HOUR, ..Options::default() };
    assert_eq!(remembered(&Site::with(all), 0..50).await, 50);
}

#[tokio::test]
async fn memory_is_bounded() {
    let options = Options { max_memory: 10_500, validity: HOUR, ..Options::default() };
    let count = remembered(&Site::with(options), 0..50).await;
    assert!((1..=10).contains(&count), "{count}");
}

/// What is asked for again and again outlives a flood of requests for other files.
#[tokio::test]
async fn what_is_used_stays() {
    let site = Site::with(Options { max_entries: 8, validity: HOUR, ..Options::default() });
    site.write("hot", "old");
    site.get("/hot").await;
    site.write("hot", "new");
    for name in 0..100 {
        site.write(&format!("{name}"), "x");
        site.get(&format!("/{name}")).await;
        assert_eq!(site.get("/hot").await.text(), "old", "{name}");
    }
}

#[test]
fn threads_share_the_limits() {
    let options = Options { max_open_files: 8, validity: HOUR, ..Options::default() };
    let site = Site::with(options);
    let folder = fs::canonicalize(site.path("")).unwrap();
    for name in 0..20 {
        site.write(&format!("{name}"), pattern(200_000));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        for name in (0..20).cycle().take(200) {
                            let answer = site.get(&format!("/{name}")).await;
                            assert!(answer.body == pattern(200_000));
                        }
                    });
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    // Each of the four may have taken one at the same moment as another.
    let open = open_below(&folder);
    assert!((1..=8 + 3).contains(&open), "{open}");
}
