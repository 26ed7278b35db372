//! Tests of studies: from a page's name to a report, without running anything.

use std::time::Duration;

use smig_chart::html::assert_balanced;
use smig_chart::svg::{Layer, Shape};
use smig_filmstrip::VisualTimes;
use smig_link::{DirectionCounters, LatenessSummary, LinkReport, Scheduling, Time};

use super::comparison::loads_figure;
use super::summary::keep_recordings_within;
use super::*;
use crate::scenario::Campaign;
use crate::timeline::{PagePart, PageSpan, ScreenFrame, Span, SpanOutcome, Timeline};
use crate::trial::{Machine, TrialResult};
use crate::workload::{Observation, Outcome, PageLoad, ReplayNotes};

fn study(page: &str, loader: Loader) -> PageStudy {
    PageStudy {
        page: PageSource::parse(page).unwrap(),
        links: vec!["fiber".into(), "lte-like".into()],
        protocols: vec![Protocol::Http1, Protocol::Paced],
        hosts: HostPlan::default(),
        control: "cubic".into(),
        loader,
        runs: 2,
    }
}

fn campaign(study: &PageStudy) -> Campaign {
    study.campaign(&|_| Ok(())).unwrap()
}

#[test]
fn a_study_is_a_campaign_of_every_network_and_version() {
    for loader in [Loader::Player, Loader::Browser { frames: true }] {
        let is_browser = loader != Loader::Player;
        let campaign = campaign(&study("12x60kB", loader));
        assert_eq!((campaign.repetitions, campaign.conditions.len()), (2, 4));
        let names: Vec<_> =
            campaign.conditions.iter().map(|condition| condition.name.to_string()).collect();
        assert!(names.contains(&"link=lte-like protocol=paced".to_owned()), "{names:?}");
        let scenario = &campaign.conditions[0].scenario;
        assert!(scenario.record.timeline);
        assert_eq!(scenario.browser_pages().count(), usize::from(is_browser));
        assert_eq!(scenario.workload.pages["page"].resources().len(), 13);
    }
    assert_eq!(campaign(&study("mosaic", Loader::Player)).conditions.len(), 4);
}

#[test]
fn what_is_not_a_page_is_said_with_what_is() {
    let dir = tempfile::tempdir().unwrap();
    let malformed = dir.path().join("page.toml");
    std::fs::write(&malformed, "document = \n").unwrap();
    let parse = |text: &str| PageSource::parse(text).unwrap_err().to_string();
    assert!(parse("mosaik").contains("OBJECTSxTOTAL"));
    assert!(parse("12xmany").contains("OBJECTSxTOTAL"));
    assert!(parse("no/such/page.toml").contains("no/such/page.toml"));
    assert!(parse(malformed.to_str().unwrap()).contains("page.toml"));
    std::fs::write(&malformed, "document = 100\ncount = 5\n").unwrap();
    assert!(parse(malformed.to_str().unwrap()).contains("count: a study sets it itself"));
    let mut wrong = study("12x60kB", Loader::Player);
    wrong.links = vec!["fibre".into()];
    let faults = wrong.campaign(&|_| Ok(())).unwrap_err();
    assert!(faults[0].message.contains("fibre"), "{faults:?}");
}

fn link_report() -> LinkReport {
    let lateness = LatenessSummary {
        packets: 0,
        p50: Duration::ZERO,
        p99: Duration::ZERO,
        max: Duration::ZERO,
    };
    LinkReport {
        to_client: DirectionCounters::default(),
        to_server: DirectionCounters::default(),
        lateness,
        scheduling: Scheduling::Ordinary,
    }
}

fn result(campaign: &Campaign, index: usize, loaded_ms: u64, outcome: Outcome) -> TrialResult {
    let trial = campaign.trials().swap_remove(index);
    let is_complete = outcome == Outcome::Complete;
    let load = PageLoad {
        name: "page".into(),
        number: 0,
        started_ns: 0,
        rendered_ns: is_complete.then_some(10_000_000),
        visible_ns: is_complete.then_some(20_000_000),
        visual: None,
        omitted_frames: 0,
        clock_error_ns: None,
        ended_ns: loaded_ms * 1_000_000,
        outcome,
        replay: None,
    };
    TrialResult {
        format: 2,
        id: trial.id.clone(),
        hash: trial.hash().to_owned(),
        seed: trial.seed,
        scenario: trial.scenario,
        versions: std::collections::BTreeMap::new(),
        machine: Machine { kernel: String::new(), cpu: String::new(), cpus: 1, jobs: 1 },
        origin: None,
        unix_time: 0,
        attempt: 1,
        seconds: 1.0,
        link: link_report(),
        more_links: Vec::new(),
        device_drops: 0,
        hystart: None,
        disturbed: Vec::new(),
        observation: Observation { pages: vec![load], ..Observation::default() },
        server_events: std::collections::BTreeMap::new(),
        timeline: None,
    }
}

fn recording(loaded_us: u64) -> Timeline {
    let mut timeline = Timeline::new("t", Time::ZERO);
    timeline.pages.push(PageSpan {
        name: "page, load 1".into(),
        from_us: 0,
        rendered_us: Some(10_000),
        visible_us: Some(20_000),
        clock_error_us: None,
        to_us: loaded_us,
        outcome: SpanOutcome::Complete,
    });
    timeline.spans.push(Span {
        name: "page 1".into(),
        group: "page".into(),
        from_us: 1_000,
        first_byte_us: Some(5_000),
        to_us: loaded_us,
        bytes: 500,
        connection: None,
        outcome: SpanOutcome::Complete,
        part: Some(PagePart {
            page: "page, load 1".into(),
            resource: "<hero>.png".into(),
            kind: "image".into(),
            found_in: None,
            connect_us: None,
            sent_us: None,
            finished_us: None,
        }),
    });
    timeline
}

#[test]
fn a_report_shows_every_combination_and_why_it_was_late() {
    let campaign = campaign(&study("12x60kB", Loader::Player));
    let complete = [100, 200, 300, 50].map(Some);
    let results: Vec<_> = complete
        .iter()
        .enumerate()
        .map(|(index, ms)| result(&campaign, index, ms.unwrap_or(0), Outcome::Complete))
        .collect();
    let mut loads: Vec<_> = results
        .iter()
        .map(|result| {
            let loaded_us = result.observation.pages[0].ended_ns / 1_000;
            MeasuredLoad::new(result, Some(&recording(loaded_us)))
        })
        .collect();
    let mut summaries = summarize(&campaign, &loads);
    assert_eq!(summaries.len(), 4);
    keep_recordings(&mut loads, &mut summaries, |result| {
        Ok::<_, ()>(Some(recording(result.observation.pages[0].ended_ns / 1_000)))
    })
    .unwrap();
    for summary in &summaries {
        let loaded_s = summary.loaded_s.unwrap();
        assert!((summary.lateness_us.total_us() / 1e6 - loaded_s).abs() < 0.02 * loaded_s);
    }
    let html = render_html("<12x60kB>", &loads, &summaries);
    assert_balanced(&html);
    assert!(
        html.contains("Over fiber, http1 has loaded after 0.10 s; paced takes 2.00 times as long.")
    );
    assert!(html.contains("Over lte-like, paced has loaded after 0.05 s; http1 takes 6.00 times"));
    assert!(html.contains("&lt;hero&gt;.png") && !html.contains("<hero>"));
    assert!(render_svg(&loads, &summaries, &summaries[0]).unwrap().contains("critical path"));
    let har = to_har("front", &loads, &summaries[1]).unwrap().to_string();
    let read = crate::har::read(har.as_bytes(), "page.har").unwrap();
    let requests: Vec<_> =
        read.requests.iter().map(|request| (request.url.path(), request.bytes)).collect();
    assert_eq!(requests, [("/%3Chero%3E.png", 500)]);
    let tidy = to_tidy_table(&loads);
    assert_eq!((tidy.rows.len(), tidy.rows[0].len()), (4, tidy.columns.len()));
    assert_eq!(tidy.rows[1][6], "0.200000");
}

/// A recording with a frame of so many bytes of base64.
fn recording_with_frame(jpeg_bytes: usize) -> Timeline {
    let mut timeline = recording(100_000);
    timeline.frames.push(ScreenFrame {
        page: "page, load 1".into(),
        at_us: 50_000,
        progress: 100,
        jpeg: "A".repeat(jpeg_bytes),
    });
    timeline
}

fn with_frames(mut result: TrialResult, speed_index_us: u64) -> TrialResult {
    result.observation.pages[0].visual = Some(VisualTimes {
        frames: 2,
        first_us: 30_000,
        speed_index_us,
        fast_speed_index_us: speed_index_us,
        perceptual_speed_index_us: speed_index_us,
        mostly_complete_us: 50_000,
        complete_us: 50_000,
    });
    result
}

#[test]
fn pictures_beyond_the_limit_of_a_report_are_left_out_and_it_says_so() {
    let campaign = campaign(&study("12x60kB", Loader::Browser { frames: true }));
    let results: Vec<_> = (0..4)
        .map(|index| with_frames(result(&campaign, index, 100, Outcome::Complete), 40_000))
        .collect();
    let mut loads: Vec<_> =
        results.iter().map(|result| MeasuredLoad::new(result, Some(&recording(100_000)))).collect();
    let mut summaries = summarize(&campaign, &loads);
    assert_eq!(summaries.len(), 4);
    let read = |_: &TrialResult| Ok::<_, ()>(Some(recording_with_frame(400)));
    keep_recordings_within(1_000, &mut loads, &mut summaries, read).unwrap();
    let left_out: Vec<_> = summaries.iter().map(|summary| summary.pictures_left_out).collect();
    assert_eq!(left_out, [false, false, true, true]);
    let html = render_html("page", &loads, &summaries);
    assert_balanced(&html);
    assert_eq!(html.matches("no filmstrip, since").count(), 2);
    // Two filmstrips, in charts of two widths, and the same in those of the load: one picture.
    assert_eq!(html.matches("data:image/jpeg;base64,").count(), 1);
    assert!(html.matches("<use ").count() >= 8);
    // The other network's loads have times by frames, and no filmstrip.
    assert!(render_filmstrips(&loads, &summaries, "lte-like").is_none());
}

#[test]
fn an_index_by_frames_and_one_by_arrival_have_names_of_their_own() {
    let campaign = campaign(&study("12x60kB", Loader::Browser { frames: true }));
    let mut changing = result(&campaign, 1, 100, Outcome::Complete);
    changing.observation.pages[0].omitted_frames = 9_000;
    let results = [with_frames(result(&campaign, 0, 100, Outcome::Complete), 45_000), changing];
    let loads = results.each_ref().map(|result| MeasuredLoad::new(result, None));
    let summaries = summarize(&campaign, &loads);
    let table = times_table(&summaries);
    let cell = |row: usize, name: &str| {
        let column = table.columns.iter().position(|(title, _)| title == name).unwrap();
        table.rows[row][column].clone()
    };
    assert_eq!(
        (cell(0, "speed index, s"), cell(0, "SpeedIndex by frames, s")),
        ("0.020".into(), "0.045".into())
    );
    assert_eq!(cell(1, "SpeedIndex by frames, s"), "–");
    let html = render_html("page", &loads, &summaries);
    assert!(html.contains("the screens of 1 loads changed too often"));
    let tidy = to_tidy_table(&loads);
    let value = |name: &str| {
        let column = tidy.columns.iter().position(|(title, _)| title == name).unwrap();
        tidy.rows[0][column].clone()
    };
    assert_eq!(value("speed_index_s"), "0.020000");
    assert_eq!(value("speed_index_by_frames_s"), "0.045000");
    let har = to_har("front", &loads, &summaries[0]);
    assert!(har.is_none(), "nothing was recorded");
    // Without frames there is no empty column.
    let of_player = summarize(&campaign, &loads[1..]);
    assert!(!times_table(&of_player).columns.iter().any(|(title, _)| title.contains("frames")));
}

#[test]
fn each_load_is_a_dot_beside_its_median() {
    let campaign = campaign(&study("12x60kB", Loader::Player));
    let mut results: Vec<_> = (0..8)
        .map(|index| result(&campaign, index, 100 + index as u64, Outcome::Complete))
        .collect();
    results[3].disturbed.push("the machine was busy".to_owned());
    let loads: Vec<_> = results.iter().map(|result| MeasuredLoad::new(result, None)).collect();
    let figure = loads_figure(&loads, &summarize(&campaign, &loads), 800.0);
    let [panel] = figure.panels.as_slice() else { panic!("{figure:?}") };
    let count = |layer: &Layer| match &layer.shape {
        Shape::Dots(_, points) => points.len(),
        Shape::Bars(bars) => bars.len(),
        _ => 0,
    };
    let counts: Vec<_> =
        panel.layers.iter().map(|layer| (layer.name.as_str(), count(layer))).collect();
    assert_eq!(counts, [("median", 4), ("load", 7), ("disturbed load", 1)]);
    let Shape::Dots(_, points) = &panel.layers[1].shape else { panic!("dots") };
    assert!(points.iter().all(|point| point.tooltip.contains(&format!("{:.3} s", point.x))));
}

#[test]
fn errors_name_the_option_or_the_key_of_the_page() {
    let texts = |study: &PageStudy, page: &str| {
        let faults = study.campaign(&|_| Ok(())).unwrap_err();
        faults.iter().map(|fault| study.explain(page, fault)).collect::<Vec<_>>()
    };
    let mut of_link = study("12x60kB", Loader::Player);
    of_link.links = vec!["fiber".into(), "fibre".into()];
    let text = texts(&of_link, "12x60kB").join("\n");
    assert!(text.starts_with("--link: \"fibre\" is not a link profile"), "{text}");
    let text = texts(&study("12x60B", Loader::Player), "12x60B").join("\n");
    assert!(text.starts_with("12x60B: total must be at least 64 bytes"), "{text}");
    let small = texts(&study("12x900B", Loader::Browser { frames: true }), "12x900B").join("\n");
    assert!(small.starts_with("12x900B: a browser's picture has at least 128 bytes"), "{small}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("front.toml");
    std::fs::write(&file, "document = 100\nresources.a = { kind = 'styl', size = 100 }\n").unwrap();
    let name = file.to_str().unwrap();
    let text = texts(&study(name, Loader::Player), name).join("\n");
    assert!(
        text.starts_with(&format!("{name}: resources.a.kind: unknown variant `styl`")),
        "{text}"
    );
}

#[test]
fn a_browser_loads_the_mosaic_that_the_player_loads() {
    let sizes = |loader| {
        let study = campaign(&study("mosaic", loader));
        let resources = study.conditions[0].scenario.workload.pages["page"].resources();
        resources.iter().map(|resource| resource.size).collect::<Vec<_>>()
    };
    let of_player = sizes(Loader::Player);
    assert_eq!(of_player, sizes(Loader::Browser { frames: false }));
    assert_eq!((of_player.len(), of_player[1..].iter().sum::<u64>()), (235, 93_000));
}

#[test]
fn a_load_that_failed_is_no_time_and_breaks_each_budget() {
    let campaign = campaign(&study("12x60kB", Loader::Player));
    let why = "document: status 404".to_owned();
    let results = [
        result(&campaign, 0, 100, Outcome::Complete),
        result(&campaign, 1, 5, Outcome::Failed(why)),
    ];
    let loads = results.each_ref().map(|result| MeasuredLoad::new(result, None));
    let summaries = summarize(&campaign, &loads);
    assert_eq!((summaries[0].loaded_s, summaries[1].loaded_s), (Some(0.1), None));
    let html = render_html("page", &loads, &summaries);
    assert!(html.contains("1 of 1 loads failed: document: status 404"));
    let budgets = ["loaded=100ms", "rendered=9ms"].map(|text| text.parse::<Budget>().unwrap());
    let checks = BudgetCheck::all(&budgets, &summaries);
    let kept: Vec<_> = checks.iter().map(BudgetCheck::is_kept).collect();
    // Two networks have no result at all: they keep no budget either.
    assert_eq!(kept, [true, false, false, false, false, false, false, false]);
    assert!(checks[2].describe().contains("was not measured, 1 loads failed, budget 100ms"));
    assert!(checks[7].describe().contains("lte-like, paced: rendered was not measured"));
    let junit = to_junit("a\u{1} & b", &checks);
    assert_balanced(junit.trim_start_matches("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"));
    assert!(junit.contains("tests=\"8\" failures=\"7\"") && junit.contains("a  &amp; b"));
}

#[test]
fn budgets_name_a_time_and_its_limit() {
    for (text, why) in [
        ("loaded", "METRIC=TIME"),
        ("onload=2s", "known: loaded"),
        ("loaded=2", "800ms"),
        ("loaded=0s", "800ms"),
    ] {
        assert!(text.parse::<Budget>().unwrap_err().contains(why), "{text}");
    }
}

#[test]
fn results_of_another_page_in_the_same_directory_do_not_count() {
    let (one, other) =
        (campaign(&study("12x60kB", Loader::Player)), campaign(&study("6x60kB", Loader::Player)));
    let mut results = vec![
        result(&other, 0, 1, Outcome::Complete),
        result(&one, 1, 200, Outcome::Complete),
        result(&one, 0, 100, Outcome::Complete),
    ];
    let loaded = |results: &[TrialResult]| {
        let own = results_of(&one, results);
        let loads: Vec<_> = own.iter().map(|result| MeasuredLoad::new(result, None)).collect();
        summarize(&one, &loads).iter().map(|summary| summary.loaded_s).collect::<Vec<_>>()
    };
    assert_eq!(loaded(&results), [Some(0.1), Some(0.2), None, None]);
    results.pop();
    assert_eq!(loaded(&results), [None, Some(0.2), None, None]);
}

#[test]
fn a_recording_is_a_page_of_its_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.har");
    let entry = |url: &str| {
        format!(
            "{{\"request\": {{\"url\": \"{url}\"}}, \"response\": {{\"status\": 200, \"bodySize\": 900}}}}"
        )
    };
    let entries = [entry("https://a.example/"), entry("https://b.example/x.png")].join(",");
    std::fs::write(&file, format!("{{\"log\": {{\"entries\": [{entries}]}}}}")).unwrap();
    let recorded = campaign(&study(file.to_str().unwrap(), Loader::Player));
    let page = &recorded.conditions[0].scenario.workload.pages["page"];
    assert_eq!(page.resources().len(), 2);
    assert!(page.host_names().contains("b.example"));
    std::fs::write(&file, "no JSON").unwrap();
    let faults = study(file.to_str().unwrap(), Loader::Player).campaign(&|_| Ok(())).unwrap_err();
    assert!(faults.iter().any(|fault| fault.to_string().contains("page.har")), "{faults:?}");
}

#[test]
fn what_cannot_be_served_is_not_said_to_be_missing_in_the_recording() {
    let campaign = campaign(&study("12x60kB", Loader::Browser { frames: false }));
    let mut result = result(&campaign, 0, 100, Outcome::Complete);
    let urls = ["https://a.example/new", "https://[2001:db8::1]/a", "https://[2001:db8::1]/b"];
    result.observation.pages[0].replay = Some(ReplayNotes {
        unknown: urls.map(str::to_owned).to_vec(),
        not_requested: 0,
        without_body: 0,
    });
    let loads = [MeasuredLoad::new(&result, None)];
    let summaries = summarize(&campaign, &loads);
    let summary = summaries.iter().find(|summary| summary.loads > 0).unwrap();
    let about = warnings(summary);
    let of = |what: &str| about.iter().find(|text| text.contains(what)).unwrap();
    assert!(of("not recorded").ends_with("not recorded: https://a.example/new"), "{about:?}");
    let unserved = of("cannot answer");
    assert!(unserved.ends_with("https://[2001:db8::1]/a, and 1 more"), "{about:?}");
}
