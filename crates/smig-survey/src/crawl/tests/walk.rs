//! Walks through simulated sites.

use std::collections::BTreeMap;

use super::*;

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

fn page(links: &[&str]) -> VisitOutcome {
    VisitOutcome::Object {
        bytes: 1000,
        size_source: SizeSource::Reading,
        media: Some("text/html".into()),
        links: links.iter().map(|link| url(link)).collect(),
        off_host: 0,
    }
}

fn object() -> VisitOutcome {
    VisitOutcome::Object {
        bytes: 7,
        size_source: SizeSource::Head,
        media: None,
        links: Vec::new(),
        off_host: 0,
    }
}

fn redirect(to: &str) -> VisitOutcome {
    VisitOutcome::Redirect { to: url(to) }
}

/// Runs a walk and returns the requested URLs with their levels.
fn walk(
    start: &str,
    limits: WalkLimits,
    outcomes: &[(&str, VisitOutcome)],
) -> (Vec<(String, u8)>, Walk) {
    let outcomes: BTreeMap<_, _> = outcomes.iter().cloned().collect();
    let mut walk = Walk::new(&url(start), limits);
    let mut requested_urls = Vec::new();
    while let Some(target) = walk.next() {
        requested_urls.push((target.url.to_string(), target.level));
        let refused = VisitOutcome::Refused { status: 404 };
        let outcome = outcomes.get(target.url.as_str()).cloned().unwrap_or(refused);
        // A page that is not read yields no links.
        let outcome = match (target.scope, outcome) {
            (FetchScope::Size, VisitOutcome::Object { bytes, size_source: by, media, .. }) => {
                VisitOutcome::Object {
                    bytes,
                    size_source: by,
                    media,
                    links: Vec::new(),
                    off_host: 0,
                }
            }
            (_, answer) => answer,
        };
        walk.record(&target, &outcome);
        assert!(requested_urls.len() < 10_000, "a loop");
    }
    (requested_urls, walk)
}

#[test]
fn three_levels_of_one_host() {
    let (requested, walk) = walk(
        "https://a.example/",
        WalkLimits::default(),
        &[
            (
                "https://a.example/",
                page(&["https://a.example/2", "https://b.example/", "http://a.example/i"]),
            ),
            ("https://a.example/2", page(&["https://a.example/", "https://a.example/3"])),
            ("https://a.example/3", page(&["https://a.example/4"])),
            ("https://a.example/i", object()),
        ],
    );
    let expected = [
        ("https://a.example/", 1),
        ("https://a.example/2", 2),
        ("https://a.example/i", 2),
        ("https://a.example/3", 3),
    ];
    assert_eq!(requested, expected.map(|(url, level)| (url.to_owned(), level)));
    assert_eq!(walk.end(), WalkEnd::Complete);
    assert_eq!(walk.site(), Site::from_url(&url("https://a.example/")).as_ref());
}

#[test]
fn the_landing_page_is_where_redirects_lead() {
    let (requested, walk) = walk(
        "http://a.example/",
        WalkLimits::default(),
        &[
            ("http://a.example/", redirect("https://www.a.example/")),
            ("https://www.a.example/", page(&["https://www.a.example/x", "https://a.example/y"])),
            ("https://www.a.example/x", redirect("https://b.example/")),
        ],
    );
    assert_eq!(requested.len(), 3, "{requested:?}");
    assert_eq!(walk.site(), Site::from_url(&url("https://www.a.example/")).as_ref());
}

#[test]
fn redirect_chains_and_loops_end() {
    let mut outcomes: Vec<(String, VisitOutcome)> = (0..100)
        .map(|n| {
            (format!("https://a.example/{n}"), redirect(&format!("https://a.example/{}", n + 1)))
        })
        .collect();
    outcomes.push((
        "https://a.example/".into(),
        page(&["https://a.example/0", "https://a.example/loop", "https://a.example/self"]),
    ));
    outcomes.push(("https://a.example/loop".into(), redirect("http://a.example/back")));
    outcomes.push(("https://a.example/back".into(), redirect("https://a.example/loop")));
    outcomes.push(("https://a.example/self".into(), redirect("https://a.example/self")));
    let outcomes: Vec<_> = outcomes.iter().map(|(url, o)| (url.as_str(), o.clone())).collect();
    let (requested, walk) = walk("https://a.example/", WalkLimits::default(), &outcomes);
    assert_eq!(requested.len(), 1 + 6 + 2 + 1, "{requested:?}");
    assert_eq!(walk.end(), WalkEnd::Complete);
}

#[test]
fn limits_end_the_walk_as_limited() {
    let links: Vec<_> = (0..50).map(|n| format!("https://a.example/{n}")).collect();
    let links: Vec<_> = links.iter().map(String::as_str).collect();
    let mut outcomes: Vec<_> =
        links.iter().map(|link| (*link, page(&["https://a.example/deep"]))).collect();
    outcomes.push(("https://a.example/", page(&links)));
    let few_objects = WalkLimits { max_urls: 10, ..WalkLimits::default() };
    let (requested, limited_walk) = walk("https://a.example/", few_objects, &outcomes);
    assert_eq!((requested.len(), limited_walk.end()), (10, WalkEnd::Limited));
    let one_page = WalkLimits { max_pages: 1, ..WalkLimits::default() };
    let (requested, limited_walk) = walk("https://a.example/", one_page, &outcomes);
    assert_eq!((requested.len(), limited_walk.end()), (51, WalkEnd::Limited));
    let one_level = WalkLimits { levels: 1, ..WalkLimits::default() };
    let (requested, complete_walk) = walk("https://a.example/", one_level, &outcomes);
    assert_eq!((requested.len(), complete_walk.end()), (1, WalkEnd::Complete));
}

#[test]
fn repeated_failures_and_requests_to_retry_later_end_the_walk() {
    let links: Vec<_> = (0..50).map(|n| format!("https://a.example/{n}")).collect();
    let links: Vec<_> = links.iter().map(String::as_str).collect();
    for (outcome, expected_requests) in [
        (VisitOutcome::Refused { status: 429 }, 1 + 3),
        (VisitOutcome::Refused { status: 503 }, 1 + 3),
        (VisitOutcome::Failed { why: "x".into() }, 1 + 5),
    ] {
        let mut outcomes: Vec<_> = links.iter().map(|link| (*link, outcome.clone())).collect();
        outcomes.push(("https://a.example/", page(&links)));
        let (requested, walk) = walk("https://a.example/", WalkLimits::default(), &outcomes);
        assert_eq!(
            (requested.len(), walk.end()),
            (expected_requests, WalkEnd::Abandoned),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_site_without_a_landing_page_is_no_site() {
    for (outcome, end) in [
        (VisitOutcome::Disallowed, WalkEnd::Disallowed),
        (VisitOutcome::Refused { status: 500 }, WalkEnd::Unreachable),
        (VisitOutcome::Failed { why: "x".into() }, WalkEnd::Unreachable),
        (redirect("https://a.example/"), WalkEnd::Unreachable),
    ] {
        let outcomes = [("https://a.example/", outcome.clone())];
        let (requested, walk) = walk("https://a.example/", WalkLimits::default(), &outcomes);
        assert_eq!((requested.len(), walk.end()), (1, end), "{outcome:?}");
        assert_eq!(walk.site(), None);
    }
}
