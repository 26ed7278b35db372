//! What is cached, for how long, and how much of it.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::ETAG;
use smig_files::FileOptions;

use crate::site::{Site, pattern};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_small_file_is_cached_for_the_ttl() {
    let site = Site::with_options(FileOptions { cache_ttl: HOUR, ..FileOptions::default() });
    site.write("a", "old");
    assert_eq!(site.get("/a").await.text(), "old");
    site.write("a", "new");
    assert_eq!(site.get("/a").await.text(), "old");
    assert_eq!(site.get("/%61").await.text(), "old");
    // Nonexistent files are not cached.
    assert_eq!(site.get("/b").await.status, StatusCode::NOT_FOUND);
    site.write("b", "now");
    assert_eq!(site.get("/b").await.text(), "now");
}

#[tokio::test]
async fn the_ttl_is_measured_with_the_given_clock() {
    thread_local! {
        // Ahead of the system's, which does not count, wherever the file is resolved.
        static NOW: Cell<Instant> = Cell::new(Instant::now() + 10 * HOUR);
    }
    let site = Site::with_options(FileOptions { cache_ttl: HOUR, ..FileOptions::default() })
        .with_clock(|| NOW.get());
    site.write("a", "old");
    assert_eq!(site.get("/a").await.text(), "old");
    site.write("a", "new");
    NOW.set(NOW.get() + HOUR - Duration::from_secs(1));
    assert_eq!(site.get("/a").await.text(), "old");
    NOW.set(NOW.get() + Duration::from_secs(60));
    assert_eq!(site.get("/a").await.text(), "new");
}

#[tokio::test]
async fn changes_are_seen_after_the_ttl() {
    let site = Site::with_options(FileOptions {
        cache_ttl: Duration::from_millis(20),
        ..FileOptions::default()
    });
    site.write("a", "old");
    site.get("/a").await;
    let changes: [(&dyn Fn(), &str); 4] = [
        (&|| fs::write(site.path("a"), "new").unwrap(), "new"),
        // Of the same size, perhaps in the same tick of the clock.
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
        // Loops forever if the change is never detected.
        while site.get("/a").await.text() != expected {
            tokio::task::yield_now().await;
        }
        assert_eq!(site.get("/a").await.text(), expected);
    }
}

#[tokio::test]
async fn with_a_zero_ttl_changes_are_seen_at_once() {
    let site = Site::with_zero_ttl();
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
async fn added_and_removed_siblings_are_noticed() {
    let site = Site::with_zero_ttl();
    let fields = [(http::header::ACCEPT_ENCODING, "gzip")];
    site.write("a", "plain");
    let response_before = site.get_with("/a", &fields).await;
    site.write("a.gz", "gz");
    assert_eq!(site.get_with("/a", &fields).await.text(), "gz");
    fs::remove_file(site.path("a.gz")).unwrap();
    let after = site.get_with("/a", &fields).await;
    assert_eq!(response_before.header(ETAG), after.header(ETAG));
    assert_eq!(response_before.headers, after.headers);
}

/// Returns the number of files below `directory` that this process has open, without `directory`.
fn count_open_files(directory: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let targets = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.starts_with(directory) && target != directory).count()
}

#[tokio::test]
async fn open_files_are_bounded() {
    let options = FileOptions { cache_open_files: 4, cache_ttl: HOUR, ..FileOptions::default() };
    let site = Site::with_options(options);
    let directory = fs::canonicalize(site.path("")).unwrap();
    for round in 0..3 {
        for name in 0..20 {
            site.write(&format!("{name}"), pattern(200_000 + name));
            let response = site.get(&format!("/{name}")).await;
            assert!(response.body == pattern(200_000 + name), "{round}");
        }
        assert_eq!(count_open_files(&directory), 4);
    }
    drop(site);
    assert_eq!(count_open_files(&directory), 0);
}

#[tokio::test]
async fn small_files_are_not_kept_open() {
    let site = Site::new();
    let directory = fs::canonicalize(site.path("")).unwrap();
    site.write("a", "a");
    site.get("/a").await;
    assert_eq!(count_open_files(&directory), 0);
}

/// Returns the number of cached files: with a TTL of an hour, a cached file is served out of date.
async fn fill_and_count_cached(site: &Site, names: std::ops::Range<usize>) -> usize {
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
    let options = FileOptions { cache_entries: 10, cache_ttl: HOUR, ..FileOptions::default() };
    let count = fill_and_count_cached(&Site::with_options(options), 0..50).await;
    assert!((1..=10).contains(&count), "{count}");
    let no_entries = FileOptions { cache_entries: 0, cache_ttl: HOUR, ..FileOptions::default() };
    assert_eq!(fill_and_count_cached(&Site::with_options(no_entries), 0..5).await, 0);
    let all = FileOptions { cache_ttl: HOUR, ..FileOptions::default() };
    assert_eq!(fill_and_count_cached(&Site::with_options(all), 0..50).await, 50);
}

#[tokio::test]
async fn memory_is_bounded() {
    let options =
        FileOptions { cache_memory_bytes: 10_500, cache_ttl: HOUR, ..FileOptions::default() };
    let count = fill_and_count_cached(&Site::with_options(options), 0..50).await;
    assert!((1..=10).contains(&count), "{count}");
}

/// A file that is requested again and again outlives a flood of requests for other files.
#[tokio::test]
async fn frequently_used_entries_stay_cached() {
    let site = Site::with_options(FileOptions {
        cache_entries: 8,
        cache_ttl: HOUR,
        ..FileOptions::default()
    });
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
    let options = FileOptions { cache_open_files: 8, cache_ttl: HOUR, ..FileOptions::default() };
    let site = Site::with_options(options);
    let directory = fs::canonicalize(site.path("")).unwrap();
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
                            let response = site.get(&format!("/{name}")).await;
                            assert!(response.body == pattern(200_000));
                        }
                    });
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    // Concurrent reservations can exceed the limit by one for each further thread.
    let open = count_open_files(&directory);
    assert!((1..=8 + 3).contains(&open), "{open}");
}
