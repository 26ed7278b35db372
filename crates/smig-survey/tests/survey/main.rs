//! The survey's crawl, against sites on loopback that log all requests.

#![cfg(target_os = "linux")]

mod site;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use smig::Trust;
use smig_survey::crawl::{
    CrawlEvent, CrawlOptions, CrawlSummary, RequestRate, ResultsFile, Url, VisitOutcome, WalkEnd,
    WalkLimits, build_client, crawl,
};
use smig_survey::{DataSource, SurveyCounts, Table};

use site::{LoggedRequest, TestSite};

fn options(rate: &str) -> CrawlOptions {
    CrawlOptions {
        rate: rate.parse::<RequestRate>().unwrap(),
        parallel_sites: 2,
        contact: "https://example.org/who".into(),
    }
}

/// Crawls until completion, or until `stop` returns true.
async fn run(
    sites: &[&TestSite],
    options: &CrawlOptions,
    out: &Path,
    mut stop: impl FnMut(&CrawlEvent<'_>) -> bool,
) {
    let pem: String = sites.iter().map(|site| site.certificate.as_str()).collect();
    let client = build_client(Trust::Pem(pem.into_bytes())).unwrap();
    let starts: Vec<_> = sites.iter().map(|site| site.url("/")).collect();
    let mut results = ResultsFile::open(out, WalkLimits::default()).unwrap();
    let stop_notify = tokio::sync::Notify::new();
    let mut on_event = |event: CrawlEvent<'_>| {
        if stop(&event) {
            stop_notify.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = stop_notify.notified() => {}
        result = crawl(&starts, options, client, &mut results, &mut on_event) => result.unwrap(),
    }
}

fn table(out: &Path) -> (Table, BTreeMap<WalkEnd, u64>) {
    let (mut counts, mut summary) = (SurveyCounts::default(), CrawlSummary::default());
    summary.read(File::open(out).unwrap(), "results", &mut counts).unwrap();
    (Table::new(DataSource::Crawl, &counts), summary.ends())
}

/// Checks that consecutive requests are at least `pause` apart.
fn assert_min_gap(requests: &[LoggedRequest], pause: Duration) {
    for pair in requests.windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!(gap >= pause, "{:?} was received {gap:?} after {:?}", pair[1], pair[0]);
    }
}

fn requests_for<'a>(requests: &'a [LoggedRequest], path: &str) -> Vec<&'a LoggedRequest> {
    requests.iter().filter(|request| request.path == path).collect()
}

/// A site with every case that a crawl handles. Level 1 is `/`, level 3 is `/deep.html` and `/film.bin`.
fn full_site(other_site: &TestSite) -> TestSite {
    let site = TestSite::new();
    let pages = [
        (
            "index.html",
            format!(
                "<!doctype html><title>t</title><link rel=stylesheet href=s.css>\
                 <a href=second.html>2</a><a href=/private/x.html>no</a><a href=/loop>l</a>\
                 <a href=/away>a</a><a href=/chain>c</a><img src=/photo.jpg srcset='/photo2.jpg 2x'>\
                 <a href={}>other</a><a href=https://off.invalid/>off</a>\
                 <a href=/big.bin#now>big</a><a href=/big.bin>again</a><a href=/no-head.bin>h</a>\
                 <a href=/once.bin>once</a><a href=/gone>gone</a><a href=mailto:x@example.org>m</a>",
                other_site.url("/offered.html")
            ),
        ),
        (
            "second.html",
            "<a href=/deep.html>3</a><video src=film.bin></video><a href=/>up</a>".into(),
        ),
        ("deep.html", "<a href=/too-deep.html>4</a>".into()),
        ("too-deep.html", "never requested".into()),
        ("private/x.html", "<a href=/big2.bin>x</a>".into()),
        ("target.html", "<p>the end of a redirect".into()),
        ("s.css", "body { background: url(/never.png) }".into()),
        ("robots.txt", "User-agent: *\nDisallow: /private/\n".into()),
    ];
    for (name, content) in pages {
        site.write(name, content.as_bytes());
    }
    site.write("photo.jpg", &[7; 18_000]);
    site.write("photo2.jpg", &[7; 40_000]);
    site.write_sparse("big.bin", 12_000_000);
    site.write_sparse("film.bin", 1_500_000);
    site.write_sparse("no-head.bin", 6_000_000);
    site.write_sparse("once.bin", 1_000);
    site
}

#[tokio::test]
async fn a_site_is_surveyed_politely() {
    let other_site = TestSite::new();
    let site = full_site(&other_site);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results.jsonl");
    run(&[&site], &options("100/s"), &out, |_| false).await;

    let requests = site.requests();
    let paths: Vec<_> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths[0], "/robots.txt");
    assert!(!paths.iter().any(|path| path.starts_with("/private")), "{paths:?}");
    for never in ["/too-deep.html", "/never.png", "/big2.bin"] {
        assert!(!paths.contains(&never), "{never} in {paths:?}");
    }
    assert!(
        other_site.requests().is_empty(),
        "a request left the host: {:?}",
        other_site.requests()
    );
    assert_min_gap(&requests, Duration::from_millis(10));
    for request in &requests {
        assert!(request.user_agent.ends_with("(+https://example.org/who)"), "{request:?}");
    }
    // Large objects are only probed, with HEAD or for one byte.
    for (path, bytes) in [("/big.bin", 0), ("/film.bin", 0), ("/photo.jpg", 0), ("/no-head.bin", 1)]
    {
        assert_eq!(site.sent_bytes(path), bytes, "{path}");
    }
    let methods: Vec<_> =
        requests_for(&requests, "/no-head.bin").iter().map(|a| a.method.as_str()).collect();
    assert_eq!(methods, ["HEAD", "GET"]);
    assert_eq!(requests_for(&requests, "/no-head.bin")[1].range, "bytes=0-0");
    // Redirect loops end. No request is repeated except after 503 with Retry-After.
    assert_eq!(
        (requests_for(&requests, "/loop").len(), requests_for(&requests, "/loop2").len()),
        (1, 1)
    );
    assert_eq!(
        (requests_for(&requests, "/big.bin").len(), requests_for(&requests, "/once.bin").len()),
        (1, 2)
    );

    let (table, ends) = table(&out);
    assert_eq!(ends, BTreeMap::from([(WalkEnd::Complete, 1)]));
    let reached: Vec<_> = table.threshold_rows.iter().map(|row| row.sites).collect();
    assert_eq!((table.sites, reached), (1, vec![1, 1, 1, 0, 0]));
    // index, second, deep, target, s.css, two photos, big, film, no-head, once.
    assert_eq!(table.objects, 11);
    assert_eq!(table.largest[0].bytes, 12_000_000);
    assert_eq!(table.largest[0].url, site.url("/big.bin").as_str());
}

#[tokio::test]
async fn a_stopped_crawl_resumes() {
    let other_site = TestSite::new();
    let site = full_site(&other_site);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results.jsonl");
    let mut visits = 0;
    let stop = |event: &CrawlEvent<'_>| {
        visits += usize::from(matches!(event, CrawlEvent::Visited(_)));
        visits == 5
    };
    run(&[&site], &options("1000/s"), &out, stop).await;
    let visited_urls = |text: &str| -> Vec<String> {
        let lines =
            text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.filter_map(|line| Some(line["visit"]["url"].as_str()?.to_owned())).collect()
    };
    let first_visits = visited_urls(&fs::read_to_string(&out).unwrap());
    assert!(first_visits.len() >= 5, "{first_visits:?}");
    let request_count_before = site.requests().len();
    run(&[&site], &options("1000/s"), &out, |_| false).await;
    let requests = site.requests();
    for url in &first_visits {
        let path = url.parse::<Url>().unwrap().path().to_owned();
        assert!(requests_for(&requests[request_count_before..], &path).is_empty(), "{path} again");
    }
    let all_visits = visited_urls(&fs::read_to_string(&out).unwrap());
    let distinct_visits: std::collections::BTreeSet<_> = all_visits.iter().collect();
    assert_eq!(distinct_visits.len(), all_visits.len(), "{all_visits:?}");
    let (table, ends) = table(&out);
    assert_eq!((table.objects, ends), (11, BTreeMap::from([(WalkEnd::Complete, 1)])));
    // Nothing is left to crawl.
    let request_count_before = site.requests().len();
    run(&[&site], &options("1000/s"), &out, |_| false).await;
    assert_eq!(site.requests().len(), request_count_before);
}

#[tokio::test]
async fn robots_txt_sets_the_pace_and_disallows_sites() {
    let slow_site = TestSite::new();
    slow_site.write("robots.txt", b"User-agent: smig-survey\nCrawl-delay: 0.15\n");
    slow_site.write("index.html", b"<img src=1><img src=2>");
    let disallowed_site = TestSite::new();
    disallowed_site.write("robots.txt", b"User-agent: *\nDisallow: /\n");
    disallowed_site.write("index.html", b"<img src=1>");
    let broken_site = TestSite::new();
    broken_site.write("index.html", b"<img src=1>");
    broken_site.fail("/robots.txt");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results.jsonl");
    run(&[&slow_site, &disallowed_site, &broken_site], &options("1000/s"), &out, |_| false).await;
    // Crawl-delay applies as soon as robots.txt is read.
    assert_min_gap(&slow_site.requests(), Duration::from_millis(150));
    assert!(slow_site.requests().len() >= 5, "{:?}", slow_site.requests());
    for site in [&disallowed_site, &broken_site] {
        let paths: Vec<_> = site.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(paths, ["/robots.txt"]);
    }
    let (table, ends) = table(&out);
    assert_eq!(ends, BTreeMap::from([(WalkEnd::Complete, 1), (WalkEnd::Disallowed, 2)]));
    assert_eq!(table.sites, 1);
}

#[tokio::test]
async fn an_unreachable_site_is_reported() {
    let site = TestSite::new();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results.jsonl");
    let unreachable_url = site.url("/");
    drop(site);
    let client = build_client(Trust::System).unwrap();
    let mut results = ResultsFile::open(&out, WalkLimits::default()).unwrap();
    let mut error = String::new();
    let mut on_event = |event: CrawlEvent<'_>| {
        if let CrawlEvent::Visited(visit) = event
            && let VisitOutcome::Failed { why: message } = &visit.outcome
        {
            error.clone_from(message);
        }
    };
    crawl(&[unreachable_url], &options("1000/s"), client, &mut results, &mut on_event)
        .await
        .unwrap();
    assert!(error.starts_with("robots.txt: "), "{error}");
    drop(results);
    let (table, ends) = table(&out);
    assert_eq!((table.sites, ends), (0, BTreeMap::from([(WalkEnd::Unreachable, 1)])));
}
