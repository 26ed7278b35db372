//! Errors are reported with their location before anything runs.

use crate::support::{SHORT_SCENARIO, Sandbox, assert_exit, text};

#[test]
fn an_invalid_file_is_rejected_with_its_line_and_key() {
    let sandbox = Sandbox::new();
    let cases = [
        ("size = \"10kB\"", "sise = \"10kB\"", ":14: workload.transfers.one", "`size`"),
        (
            "smig.enabled = false",
            "migration.min_sise = 3",
            ":18: servers.main.settings.migration.min_sise",
            "did you mean migration.min_size",
        ),
        ("smig.enabled = false", "smig.enabled = 7", ":18: servers.main", "true or false"),
        (
            "kind = \"smig\"\n[workload]",
            "kind = \"quic\"\n[workload]",
            ":9: clients.user.kind",
            "`http1`",
        ),
        ("100 Mbit/s", "fast", ":3: link.both", "fast"),
    ];
    for (valid, invalid, location, words) in cases {
        let file = sandbox.write_scenario(&SHORT_SCENARIO.replacen(valid, invalid, 1));
        let output = sandbox.run(&["run", &file, "--out", "out"]);
        assert_exit(&output, 2);
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains(&format!("test.toml{location}")) && stderr.contains(words),
            "{invalid}: {stderr}"
        );
        assert!(!sandbox.path("out").exists(), "{invalid}");
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    let sandbox = Sandbox::new();
    let file = sandbox.write_scenario(SHORT_SCENARIO);
    for (args, words) in [
        (&["run", "none.toml"][..], "none.toml"),
        (&["run", &file, "--shard", "3/2"], "such as 1/8"),
        (&["run", &file, "--filter", "scheme=Mig"], "plain, smig"),
        (&["run", &file, "--jobs", "0"], "1 to 256"),
        (&["run", &file, "--repetitions", "0"], "--repetitions"),
        (&["page", "mosaic", "--control", "bbrr"], "--control: this kernel has no"),
        (&["httpx", "none.har", "--control", "bbrr"], "--control: this kernel has no"),
        (
            &["httpx", "none.har", "--host-control", "a.example=bbrr"],
            "--host-control a.example: this kernel has no",
        ),
    ] {
        let output = sandbox.run(args);
        assert_exit(&output, 2);
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_recording_that_no_browser_can_load_is_rejected_with_the_place() {
    let sandbox = Sandbox::new();
    let entry = "{\"request\": {\"url\": \"https://a.example/\"}, \"response\": {\"status\": 200, \"bodySize\": 900}}";
    let har = format!("{{\"log\": {{\"entries\": [{entry}]}}}}");
    std::fs::write(sandbox.path("page.har"), har).unwrap();
    let output = sandbox.run(&["page", "page.har", "--browser", "--out", "out"]);
    assert_exit(&output, 2);
    let stderr = text(&output.stderr);
    let key = "page.har: log.entries[0].response.content: the document has no body";
    assert!(stderr.starts_with("error: page.har: ") && stderr.contains(key), "{stderr}");
    assert!(!sandbox.path("out").exists() && sandbox.is_clean());
}

#[test]
fn server_configurations_can_be_shown_without_a_run() {
    let sandbox = Sandbox::new();
    let scenario = format!(
        "{SHORT_SCENARIO}[variants.scheme.nginx.servers.main]\nkind = \"nginx\"\nlines = [\"gzip off;\"]\n"
    );
    let file = sandbox.write_scenario(&scenario);
    let output = sandbox.run(&["run", &file, "--show-config"]);
    assert_exit(&output, 0);
    let stdout = text(&output.stdout);
    for words in ["== scheme=nginx", "ssl http2;", "        gzip off;", "[smig]\nenabled = false"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
}

#[test]
fn a_missing_server_is_skipped_with_the_command_that_installs_it() {
    if !crate::support::can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file = sandbox.write_scenario(&format!(
        "{SHORT_SCENARIO}[variants.scheme.caddy.servers.main]\nkind = \"caddy\"\n"
    ));
    let mut command = sandbox.lab(&["run", &file, "--repetitions", "1", "--json"]);
    // This PATH has no servers: only the sbin directories that are always searched may have them.
    let output = command.env("PATH", sandbox.path("tmp")).output().unwrap();
    assert_exit(&output, 0);
    let stderr = text(&output.stderr);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["finished"], 2, "{stderr}");
    assert_eq!(summary["missing"][0], serde_json::json!({"server": "caddy", "trials": 1}));
    assert!(stderr.contains("caddy is not installed: 1 run is left out"), "{stderr}");
    assert!(stderr.contains("apt-get install"), "{stderr}");
    assert!(sandbox.path("test-results/results.jsonl").exists(), "named by the scenario");
}

#[test]
fn a_matrix_without_results_has_no_report() {
    let sandbox = Sandbox::new();
    let report = |dir: &str| sandbox.run(&["matrix", "--report", "--out", dir]);
    assert_exit(&report("absent"), 2);
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let output = report("empty");
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("empty: no results"), "{}", text(&output.stderr));
    assert!(!sandbox.path("empty/matrix.json").exists());
}

#[test]
fn a_campaign_whose_servers_are_all_missing_fails() {
    if !crate::support::can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file = sandbox.write_scenario(&format!(
        "{SHORT_SCENARIO}[variants.scheme.caddy.servers.main]\nkind = \"caddy\"\n"
    ));
    let mut command = sandbox.lab(&["run", &file, "--filter", "scheme=caddy"]);
    let output = command.env("PATH", sandbox.path("tmp")).output().unwrap();
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("no run has a result"), "{}", text(&output.stderr));
}
