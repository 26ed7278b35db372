//! Tests of the page player over the loopback.

use super::tests::{TIME_LIMIT, run_with, scenario_of};
use super::{ObjectResult, Observation, Outcome, PageLoad};

const PAGE: &str = "\
[workload.pages.news]
document = '40kB'
count = 2
pause = '20ms'
resources.style = { kind = 'style', size = '5kB', run = '10ms' }
resources.app = { kind = 'script', size = '30kB', position = 0.5, run = '40ms' }
resources.late = { kind = 'async-script', size = '10kB', position = 1.0, run = '60ms' }
resources.data = { kind = 'image', size = '300kB', parent = 'app' }
";

fn load(client: &str, page: &str) -> Observation {
    run_with(None, scenario_of(client, page), TIME_LIMIT).unwrap()
}

/// Returns the resource of a load, in the order of the graph: the document, then by name.
fn resource(observation: &Observation, number: u32) -> &ObjectResult {
    observation.objects.iter().find(|object| object.number == number).unwrap()
}

#[test]
fn resources_are_requested_when_they_are_found_and_the_load_ends_when_the_last_has_run() {
    for client in ["h2", "http1", "smig"] {
        let observation = load(client, PAGE);
        assert_eq!(observation.objects.len(), 10, "{client}");
        assert!(observation.objects.iter().all(|object| object.outcome == Outcome::Complete));
        let [first, second] = observation.pages.as_slice() else { panic!("{client}") };
        assert_eq!((first.number, &first.outcome), (0, &Outcome::Complete), "{client}");
        assert!(second.started_ns >= first.ended_ns + 20_000_000, "{client}: the pause");
        for (load, begin) in [(first, 0), (second, 5)] {
            // app, data, late, style: by name.
            let [document, app, data, late, style] =
                [0, 1, 2, 3, 4].map(|index| resource(&observation, begin + index));
            assert!(load.started_ns <= document.started_ns, "{client}");
            assert!(style.started_ns >= document.first_byte_ns.unwrap(), "{client}");
            assert!(app.started_ns >= document.first_byte_ns.unwrap(), "{client}");
            assert!(late.started_ns >= app.started_ns, "{client}: by its position");
            let app_ran_ns = app.ended_ns + 40_000_000;
            assert!(data.started_ns >= app_ran_ns, "{client}: the script asks for it");
            let rendered_ns = load.rendered_ns.unwrap();
            assert!(rendered_ns >= app_ran_ns.max(document.ended_ns), "{client}");
            assert!(load.ended_ns >= data.ended_ns.max(late.ended_ns + 60_000_000), "{client}");
            let visible_ns = load.visible_ns.unwrap();
            assert!((data.ended_ns..=load.ended_ns).contains(&visible_ns), "{client}: one picture");
            // One thread: 110 ms of running take at least that.
            assert!(load.ended_ns - load.started_ns >= 110_000_000, "{client}");
        }
    }
}

/// Returns how many connections carried a load's objects, by their addresses.
fn connections(observation: &Observation, objects: std::ops::Range<u32>) -> Vec<u32> {
    let objects = observation.objects.iter().filter(|object| objects.contains(&object.number));
    let mut numbers: Vec<_> =
        objects.flat_map(|object| object.connections.iter().map(|by| by.connection)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[test]
fn each_load_opens_its_own_connections_unless_the_page_is_warm() {
    let tiles = "[workload.pages.grid]\ncount = 2\ntiles = { objects = 30, total = '3MB' }\n";
    let cold = load("h2", tiles);
    let (first, second) = (connections(&cold, 0..31), connections(&cold, 31..62));
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
    assert_eq!(cold.connections.len(), 2, "their addresses are known: {:?}", cold.connections);

    let warm = load("h2", &format!("{tiles}warm = true\n"));
    assert_eq!(connections(&warm, 0..62).len(), 1);

    let http1 = load("http1", tiles);
    let [page, _] = http1.pages.as_slice() else { panic!("{:?}", http1.pages) };
    assert!(
        (page.rendered_ns.unwrap()..page.ended_ns).contains(&page.visible_ns.unwrap()),
        "{page:?}"
    );
    let first = connections(&http1, 0..31);
    assert!((2..=6).contains(&first.len()), "{first:?}");
    assert!(connections(&http1, 31..62).iter().all(|number| !first.contains(number)));
}

#[test]
fn transfers_may_run_until_a_page_is_loaded() {
    let observation = load(
        "h2",
        "[workload.pages.grid]\ntiles = { objects = 5, total = '50kB' }\nstart = '50ms'\n\
         [workload.transfers.small]\nsize = 1000\nevery = '10ms'\nuntil = 'grid'\n",
    );
    let [page] = observation.pages.as_slice() else { panic!("{:?}", observation.pages) };
    let small = observation.objects.iter().filter(|object| object.name == "small");
    let last = small.map(|object| object.started_ns).max().unwrap();
    assert!(last < page.ended_ns + 100_000_000, "{last} {page:?}");
}

#[test]
fn a_load_that_does_not_end_is_a_result_with_its_reason() {
    let scenario = scenario_of(
        "h2",
        "[workload.pages.grid]\ndocument = '1kB'\n\
         resources.slow = { kind = 'script', size = '1kB', run = '1h' }\n",
    );
    let observation = run_with(None, scenario, std::time::Duration::from_millis(300)).unwrap();
    let [PageLoad { outcome, rendered_ns, .. }] = observation.pages.as_slice() else {
        panic!("{:?}", observation.pages)
    };
    assert_eq!((outcome, rendered_ns), (&Outcome::TimedOut, &None));
}

#[test]
fn loads_that_do_not_begin_in_time_show_as_one_that_failed() {
    let scenario = scenario_of(
        "h2",
        "[workload.pages.grid]\ntiles = { objects = 1, total = 100 }\ncount = 1000\npause = '50ms'\n",
    );
    let observation = run_with(None, scenario, std::time::Duration::from_millis(300)).unwrap();
    let (last, complete) = observation.pages.split_last().unwrap();
    assert_eq!((last.number as usize, &last.outcome), (complete.len(), &Outcome::TimedOut));
    assert!(complete.len() < 1000);
}

const HOSTS: &str = "\
[workload.pages.news]
document = '20kB'
resources.a = { kind = 'image', size = '40kB', position = 0.1, host = 'cdn' }
resources.b = { kind = 'image', size = '50kB', position = 0.2, host = 'cdn' }
resources.c = { kind = 'image', size = '60kB', position = 0.3 }
resources.d = { kind = 'image', size = '70kB', position = 0.4, host = 'ads' }
";

#[test]
fn each_host_has_connections_of_its_own() {
    for client in ["h2", "http1", "smig"] {
        let observation = load(client, HOSTS);
        assert!(observation.objects.iter().all(|object| object.outcome == Outcome::Complete));
        let [of_document, cdn, ads] = [&[0, 3][..], &[1, 2], &[4]].map(|numbers| {
            let objects = numbers.iter().map(|number| resource(&observation, *number));
            objects
                .flat_map(|object| object.connections.iter().map(|by| by.connection))
                .collect::<std::collections::BTreeSet<_>>()
        });
        assert!(of_document.is_disjoint(&cdn) && cdn.is_disjoint(&ads), "{client}");
        assert!(of_document.is_disjoint(&ads), "{client}");
        if client == "h2" {
            assert_eq!((of_document.len(), cdn.len(), ads.len()), (1, 1, 1));
        }
        let known: Vec<_> = observation.connections.iter().map(|record| record.number).collect();
        let used = of_document.iter().chain(&cdn).chain(&ads);
        assert!(used.into_iter().all(|number| known.contains(number)), "{client}: addresses");
    }
}
