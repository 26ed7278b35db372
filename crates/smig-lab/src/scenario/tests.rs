//! Tests of scenario texts: what is accepted, what is rejected, and the resulting trials.

mod commands;

use std::path::Path;

use super::*;

const MINIMAL_SCENARIO: &str = "\
link = \"paper-wired\"
[servers.main]
kind = \"smig\"
[clients.user]
kind = \"smig\"
[workload.transfers.big]
size = \"50MB\"
";

/// A stand-in for the validation of settings: sections with a one-letter name are unknown.
fn check_setting(text: &str) -> Result<(), String> {
    let section = text.trim_start_matches('[').split(']').next().unwrap_or_default();
    if section.len() == 1 { Err(format!("unknown section [{section}]")) } else { Ok(()) }
}

fn parse_valid(text: &str) -> Campaign {
    parse(text, "test", Path::new("/"), &check_setting)
        .unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn parse_errors(text: &str) -> Vec<String> {
    let faults = match parse(text, "test", Path::new("/"), &check_setting) {
        Ok(campaign) => panic!("taken: {campaign:#?}"),
        Err(faults) => faults,
    };
    let shown = Diagnostics { file: "test.toml".into(), diagnostics: faults }.to_string();
    shown.lines().map(str::to_owned).collect()
}

#[test]
fn a_minimal_scenario_has_defaults() {
    let campaign = parse_valid(MINIMAL_SCENARIO);
    assert_eq!((campaign.name.as_str(), campaign.repetitions), ("test", 1));
    let [condition] = campaign.conditions.as_slice() else { panic!("{:?}", campaign.conditions) };
    assert_eq!(condition.name.to_string(), "all");
    let scenario = &condition.scenario;
    assert_eq!(scenario.link, smig_link::LinkSpec::paper_wired());
    assert_eq!(scenario.server_of(&scenario.clients["user"]), Some("main"));
    let big = &scenario.workload.transfers["big"];
    assert_eq!((big.size_of(0), big.size_of(7), big.max_objects()), (50_000_000, 50_000_000, 1));
    assert_eq!(
        (big.size_class_of(50_000_000), big.size_class_of(10_000)),
        (SizeClass::Large, SizeClass::Small)
    );
    assert_eq!(scenario.accept, ValidityBounds::default());
}

/// Text to append to the small scenario, place of the error, and parts of its message.
const INVALID_LINES: &[(&str, &str, &[&str])] = &[
    ("sise = 3\n", "test.toml:8: workload.transfers.big.sise: ", &["unknown field", "`size`"]),
    ("size = 3\n", "test.toml:8: ", &["duplicate key"]),
    ("start = 5\n", "test.toml:8: workload.transfers.big.start: ", &["5", "\"500ms\""]),
    ("start = \"5 weeks\"\n", "test.toml:8: workload.transfers.big.start: ", &["5 weeks", "2min"]),
    (
        "arrival = \"often\"\n",
        "test.toml:8: workload.transfers.big.arrival: ",
        &["often", "`poisson`"],
    ),
    ("client = \"me\"\n", "test.toml:8: workload.transfers.big.client: ", &["\"me\"", "user"]),
    ("count = 2\n", "test.toml:6: workload.transfers.big.every: ", &["an interval"]),
    ("count = 0\n", "test.toml:8: workload.transfers.big.count: ", &["0"]),
    ("until = \"big\"\n", "test.toml:8: workload.transfers.big.until: ", &["not another transfer"]),
    ("cancel = {}\n", "test.toml:8: workload.transfers.big.cancel: ", &["is required"]),
    (
        "cancel = { at = \"much\" }\n",
        "test.toml:8: workload.transfers.big.cancel.at: ",
        &["much", "64KiB"],
    ),
    (
        "[hosts.server]\nsend_buffer = [1, 2]\n",
        "test.toml:9: hosts.server.send_buffer: ",
        &["length"],
    ),
    (
        "[hosts.server]\nsend_buffer = [4, 2, 9]\n",
        "test.toml:9: hosts.server.send_buffer: ",
        &["minimum"],
    ),
    ("[hosts.server]\nhystart = \"off\"\n", "test.toml:9: hosts.server.hystart: ", &["boolean"]),
    (
        "[hosts.server]\nhystart = true\n[hosts.client]\nhystart = false\n",
        "test.toml:11: hosts.client.hystart: ",
        &["whole machine"],
    ),
    (
        "[variants.start.A]\nhosts.server.hystart = true\n[variants.start.B]\n",
        "test.toml:",
        &["hosts.server.hystart", "every condition", "start=B"],
    ),
    (
        "[[events]]\nat = \"1s\"\nlink = 1\ndo = \"down\"\n",
        "test.toml:10: events.0.link: ",
        &["links 0 to 0"],
    ),
    (
        "[[events]]\nat = \"2s\"\ndo = \"down\"\n[[events]]\nat = \"1s\"\ndo = \"up\"\n",
        "test.toml:12: events.1.at: ",
        &["order of time"],
    ),
    (
        "[[events]]\nat = \"5000000000000000h\"\ndo = \"down\"\n",
        "test.toml:9: events.0.at: ",
        &["24h", "choose an earlier time"],
    ),
    ("[[events]]\nat = \"1s\"\ndo = \"fail\"\n", "test.toml:10: events.0.do: ", &["`down`"]),
    (
        "[hosts.client]\nsubflows = \"always\"\n",
        "test.toml:9: hosts.client.subflows: ",
        &["more_links"],
    ),
    (
        "[hosts.server]\nsubflows = \"backup\"\n",
        "test.toml:9: hosts.server.subflows: ",
        &["clients' host"],
    ),
    ("[hosts.proxy]\n", "test.toml:8: hosts.proxy: ", &["unknown field", "`client`"]),
    (
        "[hosts.client.sysctls]\n\"../x\" = \"1\"\n",
        "test.toml:8: hosts.client.sysctls: ",
        &["/proc/sys/net"],
    ),
    (
        "[servers.other]\nkind = \"apache\"\n",
        "test.toml:9: servers.other.kind: ",
        &["apache", "`nginx`"],
    ),
    (
        "[servers.other]\nkind = \"nginx\"\n",
        "test.toml:4: clients.user.server: ",
        &["name one server", "main, other"],
    ),
    (
        "[servers.main.settings]\nx = { y = 1 }\n",
        "test.toml:9: servers.main.settings.x.y: ",
        &["unknown section [x]"],
    ),
    (
        "[servers.main.settings.server]\nroot = \"x\"\n",
        "test.toml:9: servers.main.settings.server.root: ",
        &["itself"],
    ),
    (
        "[clients.user2]\nkind = \"http1\"\nspares = 1\n",
        "test.toml:10: clients.user2.spares: ",
        &["\"smig\""],
    ),
    (
        "[clients.user2]\nkind = \"h2\"\nlink = \"both\"\n",
        "test.toml:10: clients.user2.link: ",
        &["\"all\""],
    ),
    ("[clients.\"a.b\"]\nkind = \"h2\"\n", "test.toml:4: clients: ", &["a.b", "letters"]),
    ("[accept]\nattempts = 0\n", "test.toml:9: accept.attempts: ", &["0"]),
    ("[variants.scheme.A]\nlink = \"wired\"\n", "test.toml:9: link: ", &["wired", "paper-wired"]),
    (
        "[variants.scheme.A]\nclients.user.spares = -1\n",
        "test.toml:9: clients.user.spares: ",
        &["-1"],
    ),
    (
        "[variants.scheme.A]\n[variants.scheme.B.workload]\npace = 1\n",
        "test.toml:10: workload.pace: ",
        &["`transfers`"],
    ),
    ("[variants]\nscheme = 3\n", "test.toml:9: variants.scheme: ", &["map"]),
    ("x = [1,\n", "test.toml:", &["array"]),
];

#[test]
fn errors_name_file_line_key_and_remedy() {
    for (text, place, words) in INVALID_LINES {
        let errors = parse_errors(&format!("{MINIMAL_SCENARIO}{text}"));
        let fits = |error: &&String| {
            error.starts_with(place) && words.iter().all(|word| error.contains(word))
        };
        assert!(errors.iter().any(|error| fits(&error)), "{text}: {errors:#?}");
    }
    let first = parse_errors(&format!("repetitions = 0\n{MINIMAL_SCENARIO}"));
    assert_eq!(first, ["test.toml:1: repetitions: 0 would measure nothing"]);
    assert_eq!(parse_errors("seed = \"x\"\n").len(), 1);
}

#[test]
fn hystart_applies_to_both_hosts() {
    let hystart_of = |text: &str| {
        let campaign = parse_valid(&format!("{MINIMAL_SCENARIO}{text}"));
        campaign
            .conditions
            .iter()
            .map(|condition| condition.scenario.hosts.hystart())
            .collect::<Vec<_>>()
    };
    assert_eq!(hystart_of(""), [None]);
    assert_eq!(hystart_of("[hosts.client]\nhystart = true\n"), [Some(true)]);
    let both = "[hosts.server]\nhystart = false\n[hosts.client]\nhystart = false\n";
    assert_eq!(hystart_of(both), [Some(false)]);
    let variants = "[variants.start.on]\nhosts.server.hystart = true\n\
                    [variants.start.off]\nhosts.client.hystart = false\n";
    assert_eq!(hystart_of(variants), [Some(true), Some(false)]);
}

#[test]
fn every_fault_is_reported_once() {
    let text = format!(
        "{MINIMAL_SCENARIO}count = 0\npriority = 3\n\n[variants.a.one]\n[variants.a.two]\n[variants.b.x]\n"
    );
    let errors = parse_errors(&text);
    assert_eq!(errors.len(), 1, "a wrong type ends the reading: {errors:#?}");
    let text = format!(
        "{MINIMAL_SCENARIO}count = 0\ncancel = {{}}\n\n[variants.a.one]\n[variants.a.two]\n"
    );
    assert_eq!(parse_errors(&text).len(), 2, "{:#?}", parse_errors(&text));
}

const MATRIX: &str = "
[variants.scheme.NoMig]
servers.main.settings.smig.enabled = false
[variants.scheme.MigCP]
clients.user.migrate = \"at:100KiB\"
[variants.scheme.nginx.servers.main]
kind = \"nginx\"
[variants.buffer.default]
[variants.buffer.large]
hosts.server.send_buffer = [\"1MiB\", \"4MiB\", \"8MiB\"]
";

fn matrix() -> Campaign {
    let base = MINIMAL_SCENARIO.replace(
        "kind = \"smig\"\n[clients",
        "kind = \"smig\"\nsettings.migration.max_bulk_deferral = \"0\"\n[clients",
    );
    parse_valid(&format!("repetitions = 4\nseed = 7\n{base}{MATRIX}"))
}

#[test]
fn http3_needs_both_ends() {
    let with_kinds = |server: &str, client: &str| {
        let text = MINIMAL_SCENARIO.replacen("kind = \"smig\"", &format!("kind = {server:?}"), 1);
        text.replace(
            "[clients.user]\nkind = \"smig\"",
            &format!("[clients.user]\nkind = {client:?}"),
        )
    };
    let http3 = with_kinds("http3", "http3");
    parse_valid(&http3);
    let closing = format!("{http3}cancel = {{ at = '1kB', how = 'close' }}\n");
    let errors = parse_errors(&closing);
    assert!(errors[0].contains("cancel.how") && errors[0].contains("TCP"), "{errors:?}");
    for (server, client) in [("smig", "http3"), ("http3", "h2")] {
        let errors = parse_errors(&with_kinds(server, client));
        assert!(
            errors[0].contains("clients.user.kind") && errors[0].contains("http3"),
            "{errors:?}"
        );
    }
}

#[test]
fn a_browser_loads_tiles_and_nothing_else() {
    let with_page = |client: &str, page: &str| {
        format!(
            "link = 'paper-wired'\n[servers.main]\nkind = 'nginx'\n[clients.user]\nkind = 'chromium'\n{client}\n\
             [workload.pages.grid]\n{page}\n"
        )
    };
    parse_valid(&with_page(
        "http2 = false\nframes = true",
        "tiles = { objects = 6, total = '40kB' }",
    ));
    let errors = |client: &str, page: &str| parse_errors(&with_page(client, page)).join("\n");
    let graph = "document = '9kB'\nresources.a = { kind = 'style', size = '1kB' }";
    let found = errors("", graph);
    assert!(found.contains("pages.grid.document") && found.contains("grid.resources"), "{found}");
    let found = errors("", "warm = true\ntiles = { objects = 6, total = '600' }");
    assert!(found.contains("grid.warm") && found.contains("at least 128 bytes"), "{found}");
    let endless = "tiles = { objects = 4_000_000_000, total = '1GB' }";
    assert!(errors("", endless).contains("objects must be 1 to"));
    let nghttpd = with_page("http2 = false", "tiles = { objects = 6, total = '40kB' }");
    let found = parse_errors(&nghttpd.replace("'nginx'", "'nghttpd'")).join("\n");
    assert!(found.contains("does not support HTTP/1.1"), "{found}");
    let found = errors("priorities = 'sent'", "tiles = { objects = 6, total = '40kB' }");
    assert!(found.contains("clients.user.priorities"), "{found}");
    let transfer =
        "tiles = { objects = 6, total = '40kB' }\n[workload.transfers.big]\nsize = '1MB'";
    let found = errors("", transfer);
    assert!(found.contains("transfers.big.client") && found.contains("pages only"), "{found}");
    let found = parse_errors(&MINIMAL_SCENARIO.replace(
        "[clients.user]\nkind = \"smig\"",
        "[clients.user]\nkind = \"smig\"\nhttp2 = false\nframes = true",
    ));
    assert!(found[0].contains("clients.user.http2"), "{found:?}");
    assert!(found[1].contains("clients.user.frames"), "{found:?}");
}

#[test]
fn variants_are_combined_in_the_files_order() {
    let campaign = matrix();
    let names: Vec<_> =
        campaign.conditions.iter().map(|condition| condition.name.to_string()).collect();
    assert_eq!(
        names,
        [
            "scheme=NoMig buffer=default",
            "scheme=NoMig buffer=large",
            "scheme=MigCP buffer=default",
            "scheme=MigCP buffer=large",
            "scheme=nginx buffer=default",
            "scheme=nginx buffer=large",
        ]
    );
    let scenario = |index: usize| &campaign.conditions[index].scenario;
    assert_eq!(scenario(1).hosts.server.send_buffer.map(|sizes| sizes[2]), Some(Size(8 << 20)));
    assert_eq!(scenario(0).hosts.server.send_buffer, None);
    let main = |index| &scenario(index).servers["main"];
    assert_eq!(main(0).settings["smig"]["enabled"], toml::Value::from(false));
    assert_eq!(
        main(0).settings["migration"]["max_bulk_deferral"],
        toml::Value::from("0"),
        "kept from the base"
    );
    assert_eq!(scenario(2).clients["user"].migrate, Some(ClientMigration::At(Size(100 << 10))));
    assert_eq!(main(4).kind, ServerKind::Nginx);
    assert!(main(4).settings.is_empty(), "another kind does not keep the first one's settings");
}

#[test]
fn trials_are_ordered_by_repetition() {
    let trials = matrix().trials();
    assert_eq!(trials.len(), 24);
    assert!(trials.is_sorted_by_key(|trial| trial.id.repetition));
    assert!(trials[..6].iter().all(|trial| trial.seed == trials[0].seed), "paired by seed");
    assert_ne!(trials[0].seed, trials[6].seed);
    let same_trials = matrix().trials();
    let mut hashes: Vec<_> = trials.iter().map(Trial::hash).collect();
    assert_eq!(hashes, same_trials.iter().map(Trial::hash).collect::<Vec<_>>());
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 24);
}

#[test]
fn a_trial_survives_serialization() {
    for trial in matrix().trials() {
        let text = serde_json::to_string(&trial).unwrap();
        let back: Trial = serde_json::from_str(&text).unwrap();
        assert_eq!(back, trial);
        assert_eq!(back.hash(), trial.hash());
    }
}

#[test]
fn shards_are_a_partition_and_keep_repetitions_together() {
    let campaign = matrix();
    let all_trials = campaign.trials();
    for shard_count in 1..=30 {
        let mut selected_ids = Vec::new();
        for index in 1..=shard_count {
            let selected = Shard { index, count: shard_count }
                .select(all_trials.clone(), campaign.repetitions);
            if shard_count <= 4 {
                assert_eq!(selected.len() % 6, 0, "whole repetitions");
            }
            selected_ids.extend(selected.into_iter().map(|trial| trial.id));
        }
        selected_ids.sort();
        let mut ids: Vec<_> = all_trials.iter().map(|trial| trial.id.clone()).collect();
        ids.sort();
        assert_eq!(selected_ids, ids, "{shard_count} shards");
    }
    assert_eq!(Shard::parse("2/8"), Ok(Shard { index: 2, count: 8 }));
    for text in ["0/8", "9/8", "2", "a/b", "1/0", ""] {
        assert!(Shard::parse(text).is_err(), "{text}");
    }
}

#[test]
fn filters_are_alternatives_within_an_axis_and_conjunctions_across_axes() {
    let campaign = matrix();
    let count_matching = |texts: &[&str]| {
        let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
        let filter = Filter::parse(&texts, &campaign)?;
        let matches = |condition: &&Condition| filter.matches(&condition.name);
        Ok::<_, String>(campaign.conditions.iter().filter(matches).count())
    };
    assert_eq!(count_matching(&[]), Ok(6));
    assert_eq!(count_matching(&["scheme=NoMig"]), Ok(2));
    assert_eq!(count_matching(&["scheme=NoMig", "scheme=nginx"]), Ok(4));
    assert_eq!(count_matching(&["scheme=NoMig", "scheme=nginx", "buffer=large"]), Ok(2));
    assert!(count_matching(&["scheme=Mig"]).unwrap_err().contains("MigCP, NoMig, nginx"));
    assert!(count_matching(&["queue=deep"]).unwrap_err().contains("scheme, buffer"));
    assert!(count_matching(&["NoMig"]).unwrap_err().contains("AXIS=NAME"));
}

#[test]
fn a_traces_hash_depends_on_its_bytes_and_not_on_its_path() {
    let text = MINIMAL_SCENARIO.replace(
        "link = \"paper-wired\"\n",
        "[link.both]\nrate = { trace = \"some.trace\" }\ndelay_ms = 1\nqueue = { packets = 9 }\n",
    );
    let trial_with_trace = |trace: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("some.trace"), trace).unwrap();
        let campaign = parse(&text, "test", dir.path(), &check_setting).unwrap();
        campaign.trials().remove(0)
    };
    let (first, with_same_trace, with_other_trace) = (
        trial_with_trace("1\n2\n5\n"),
        trial_with_trace("1\n2\n5\n"),
        trial_with_trace("1\n2\n6\n"),
    );
    assert_ne!(first.scenario, with_same_trace.scenario, "found in another directory");
    assert_eq!(first.hash(), with_same_trace.hash());
    assert_ne!(first.hash(), with_other_trace.hash());
    assert!(parse_errors(&text)[0].contains("some.trace"), "{:?}", parse_errors(&text));
}

const RECORDED_PAGE: &str = r#"{"log": {"entries": [
    {"startedDateTime": "2026-01-31T12:00:00.000Z", "request": {"url": "https://www.example.org/"},
     "response": {"status": 200, "bodySize": 9000, "content": {"mimeType": "text/html"}}},
    {"startedDateTime": "2026-01-31T12:00:00.100Z", "request": {"url": "https://cdn.example.net/app.js"},
     "response": {"status": 200, "bodySize": 500}, "_priority": "High",
     "_initiator": "https://www.example.org/"},
    {"startedDateTime": "2026-01-31T12:00:00.200Z", "request": {"url": "https://www.example.org/a.css"},
     "response": {"status": 200, "bodySize": 0}, "_initiator": "https://cdn.example.net/app.js"}]}}"#;

#[test]
fn a_recording_is_found_next_to_the_scenario_and_belongs_to_the_trial() {
    let dir = tempfile::tempdir().unwrap();
    let har = dir.path().join("page.har");
    std::fs::write(&har, RECORDED_PAGE).unwrap();
    let text = MINIMAL_SCENARIO
        .replace("transfers.big]\nsize = \"50MB\"", "pages.news]\nhar = \"page.har\"");
    let load = || parse(&text, "test", dir.path(), &check_setting).unwrap();
    let campaign = load();
    let page = &campaign.conditions[0].scenario.workload.pages["news"];
    let resources = page.resources();
    let shown: Vec<_> = resources
        .iter()
        .map(|resource| (resource.name.as_str(), resource.size, resource.host.as_deref()))
        .collect();
    let cdn = Some("cdn.example.net");
    assert_eq!(
        shown,
        [("document", 9_000, None), ("cdn.example.net/app.js", 500, cdn), ("/a.css", 1, None)]
    );
    assert_eq!(resources[1].discovery, Discovery::Document { bytes: 4_500 });
    assert_eq!(resources[2].discovery, Discovery::Parent { index: 1 });
    let blocking: Vec<_> = resources.iter().map(|resource| resource.blocks_rendering).collect();
    assert_eq!(blocking, [true, true, false], "what a script asks for blocks nothing");
    // A process of its own runs the trial: it gets all of it.
    let trial = &campaign.trials()[0];
    let again: Trial = serde_json::from_str(&serde_json::to_string(trial).unwrap()).unwrap();
    assert_eq!(&again, trial);
    let hash = trial.hash().to_owned();
    assert_eq!(load().trials()[0].hash(), hash);
    std::fs::write(&har, RECORDED_PAGE.replace("9000", "9001")).unwrap();
    assert_ne!(load().trials()[0].hash(), hash);
}

#[test]
fn a_recording_that_cannot_be_read_is_a_fault_of_its_key() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("page.har"), RECORDED_PAGE.replace("https://www", "")).unwrap();
    std::fs::write(dir.path().join("good.har"), RECORDED_PAGE).unwrap();
    let faults = |page: &str| {
        let text = MINIMAL_SCENARIO
            .replace("transfers.big]\nsize = \"50MB\"", &format!("pages.news]\n{page}"));
        let faults = parse(&text, "test", dir.path(), &check_setting).unwrap_err();
        faults.into_iter().map(|fault| fault.to_string()).collect::<Vec<_>>().join("; ")
    };
    let missing = faults("har = \"none.har\"");
    assert!(missing.contains("news.har: cannot read none.har: No such file"), "{missing}");
    let one = faults("har = \"none.har\"\nhosts.\"a.b\".server = \"main\"");
    assert!(!one.contains("no resource"), "{one}");
    let broken = faults("har = \"page.har\"");
    assert!(broken.contains("page.har: log.entries[0].request.url"), "{broken}");
    let two =
        faults("har = \"good.har\"\ntiles = { objects = 3, total = \"10kB\" }\ndocument = \"1kB\"");
    assert!(
        two.contains("news.tiles: the recording has its own") && two.contains("news.document"),
        "{two}"
    );
    let own = faults("document = \"1kB\"\nrecording = { url = \"x\", resources = [] }");
    assert!(own.contains("news.recording: the lab reads it"), "{own}");
}

#[test]
fn what_a_browser_needs_of_a_recording_is_checked_with_the_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let faults_of = |har: &str, is_browser: bool, more: &str| {
        std::fs::write(dir.path().join("page.har"), har).unwrap();
        let kind = if is_browser { "chromium" } else { "h2" };
        let text = format!(
            "link = \"fiber\"\n[servers.main]\nkind = \"smig\"\n[clients.user]\nkind = \"{kind}\"\n[workload.pages.news]\nhar = \"page.har\"\n{more}"
        );
        let faults = parse(&text, "test", dir.path(), &check_setting).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.to_string()).collect::<Vec<_>>().join("; ")
    };
    let faults = |har: &str, is_browser: bool| faults_of(har, is_browser, "");
    // A player needs no bodies.
    assert_eq!(faults(RECORDED_PAGE, false), "");
    let without_body = faults(RECORDED_PAGE, true);
    assert!(
        without_body.contains("7: workload.pages.news.har: page.har: log.entries[0].response.content: the document has no body"),
        "{without_body}"
    );
    let with_body = RECORDED_PAGE
        .replace("\"mimeType\": \"text/html\"", "\"mimeType\": \"text/html\", \"text\": \"<p>a\"");
    assert_eq!(faults(&with_body, true), "");
    // One resource of a strange host is left out; a document cannot be.
    assert_eq!(faults(&with_body.replace("cdn.example.net", "[::1]"), true), "");
    let strange = faults(&with_body.replace("https://www.example.org", "https://[::1]"), true);
    assert!(strange.contains("news.har: \"[::1]\" is no name of a host"), "{strange}");
    let hosts: String = (0..150)
        .map(|n| {
            format!(
                ", {{\"request\": {{\"url\": \"https://h{n}.example/\"}}, \"response\": {{\"status\": 200, \"bodySize\": 5}}}}"
            )
        })
        .collect();
    // Twice: each page has addresses of its own.
    let many = with_body.replace("]}}", &format!("{hosts}]}}}}"));
    let twice = "[workload.pages.again]\nhar = \"page.har\"\n";
    let too_many = faults_of(&many, true, twice);
    for page in ["news", "again"] {
        let what = format!("pages.{page}.har: 302 addresses would be needed, and 240");
        assert!(too_many.contains(&what), "{too_many}");
    }
    assert_eq!(faults(&many, true), "");
    assert_eq!(faults_of(&many, false, twice), "");
}

#[test]
fn a_host_of_a_page_has_resources_and_a_server_for_its_client() {
    let faults = |page: &str| {
        let text = MINIMAL_SCENARIO
            .replace("[clients.user]", "[servers.other]\nkind = \"http3\"\n[clients.user]\nserver = \"main\"")
            .replace("transfers.big]\nsize = \"50MB\"", "pages.news]\ndocument = \"9kB\"\nresources.a = { kind = \"font\", size = 9, host = \"cdn\" }");
        match parse(&format!("{text}{page}"), "test", Path::new("/"), &check_setting) {
            Ok(campaign) => {
                format!("{:?}", campaign.conditions[0].scenario.workload.pages["news"].hosts)
            }
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }
    };
    assert!(faults("hosts.cdn.server = \"main\"\n").contains("PageHost { server: \"main\" }"));
    for (page, words) in [
        ("hosts.cdn.server = \"none\"\n", "unknown server \"none\"; known: main, other"),
        (
            "hosts.\"a.b\".server = \"main\"\n",
            "news.hosts: a.b: no resource has this host; known: cdn",
        ),
        ("hosts.cdn.server = \"other\"\n", "cannot use other"),
        ("hosts.cdn = {}\n", "missing field `server`"),
        ("warm = true\n", "news.warm"),
    ] {
        assert!(faults(page).contains(words), "{}", faults(page));
    }
}
