//! A campaign runs to completion despite interruptions.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use smig_lab::workload::Outcome;

use crate::support::{SHORT_SCENARIO, Sandbox, assert_exit, can_run, text};

/// From the start of a campaign to that of its first trial.
const TRIAL_START_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn each_trial_is_measured_exactly_once() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file = sandbox.write_scenario(SHORT_SCENARIO);
    let first_run = sandbox.run(&["run", &file, "--out", "out", "--repetitions", "2", "--json"]);
    assert_exit(&first_run, 0);
    let summary: serde_json::Value = serde_json::from_slice(&first_run.stdout).unwrap();
    assert_eq!((&summary["finished"], &summary["done_before"]), (&4.into(), &0.into()));
    let results = sandbox.results("out");
    assert_eq!(results.len(), 4);
    for result in &results {
        let objects = &result.observation.objects;
        assert_eq!(objects.len(), 1);
        assert_eq!((&objects[0].outcome, objects[0].bytes), (&Outcome::Complete, 10_000));
        assert!(result.disturbed.is_empty());
        let origin = result.origin.as_ref().unwrap();
        assert_eq!(origin.build, results[0].origin.as_ref().unwrap().build, "one program");
        assert_eq!(
            origin.build.program_sha256.len(),
            64,
            "a digest: {}",
            origin.build.program_sha256
        );
        assert!(result.versions["smig"].starts_with("smig "));
        let joined = result.server_events["main"].iter().any(|event| event["event"] == "joined");
        assert_eq!(joined, result.id.condition.level("scheme") == Some("smig"), "{result:#?}");
    }
    // Only the third repetition is run; the existing results stay unchanged.
    let second_run = sandbox.run(&["run", &file, "--out", "out"]);
    assert_exit(&second_run, 0);
    let results_after = sandbox.results("out");
    assert_eq!((results_after.len(), &results_after[..4]), (6, &results[..]));
    let third_run = sandbox.run(&["run", &file, "--out", "out"]);
    assert!(text(&third_run.stderr).contains("0 to run, 6 done"), "{}", text(&third_run.stderr));
    assert!(sandbox.is_clean());
    // A changed file is another scenario.
    let file = sandbox.write_scenario(&SHORT_SCENARIO.replace("10kB", "11kB"));
    let changed_run = sandbox.run(&["run", &file, "--out", "out"]);
    assert_exit(&changed_run, 2);
    assert!(text(&changed_run.stderr).contains("--out"), "{}", text(&changed_run.stderr));
}

/// Starts a campaign, and waits until it has reported `results` results.
fn start(sandbox: &Sandbox, file: &str, results: usize) -> Child {
    let mut child = sandbox.lab(&["run", file, "--out", "out"]).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let reported = lines.map(Result::unwrap).filter(|line| line.starts_with("scheme="));
    assert_eq!(reported.take(results).count(), results, "it ended early");
    child
}

#[test]
fn a_killed_campaign_resumes() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file =
        sandbox.write_scenario(&SHORT_SCENARIO.replace("repetitions = 3", "repetitions = 20"));
    let mut child = start(&sandbox, &file, 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let results_before = sandbox.results("out");
    assert!((3..=40).contains(&results_before.len()), "{}", results_before.len());
    // Simulate a crash of the machine in the middle of a line.
    let path = sandbox.path("out/results.jsonl");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"format\":1,\"id\":{\"camp");
    std::fs::write(&path, bytes).unwrap();

    let resumed_run = sandbox.run(&["run", &file, "--out", "out"]);
    assert_exit(&resumed_run, 0);
    let results_after = sandbox.results("out");
    assert_eq!(results_after[..results_before.len()], results_before[..]);
    let mut ids: Vec<_> = results_after.iter().map(|result| result.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), results_after.len()), (40, 40));
    assert!(sandbox.is_clean(), "files of the killed process are removed too");
}

#[test]
fn an_interrupted_campaign_ends_its_runs_and_cleans_up() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file =
        sandbox.write_scenario(&SHORT_SCENARIO.replace("repetitions = 3", "repetitions = 1000"));
    let mut child = start(&sandbox, &file, 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(sandbox.is_clean());
    assert!(!sandbox.results("out").is_empty());
}

#[test]
fn shards_in_one_directory_are_a_complete_campaign_and_a_second_measurement_conflicts() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file = sandbox.write_scenario(SHORT_SCENARIO);
    for shard in ["1/2", "2/2"] {
        assert_exit(&sandbox.run(&["run", &file, "--out", "shares", "--shard", shard]), 0);
    }
    // This build has no commit: its results are joined only with --any-build.
    let refused_output = sandbox.run(&["merge", "all", "shares"]);
    assert_exit(&refused_output, 1);
    assert!(
        text(&refused_output.stderr).contains("a build without a known commit"),
        "{}",
        text(&refused_output.stderr)
    );
    assert!(!sandbox.path("all").exists());
    let merge_output = sandbox.run(&["merge", "all", "shares", "--json", "--any-build"]);
    assert_exit(&merge_output, 0);
    let summary: serde_json::Value = serde_json::from_slice(&merge_output.stdout).unwrap();
    assert_eq!(summary["results"], 6);
    // The complete campaign has nothing left to run.
    let resumed_run = sandbox.run(&["run", &file, "--out", "all", "--jobs", "2"]);
    assert!(
        text(&resumed_run.stderr).contains("0 to run, 6 done"),
        "{}",
        text(&resumed_run.stderr)
    );
    // A second measurement of the same trials conflicts.
    assert_exit(&sandbox.run(&["run", &file, "--out", "again", "--jobs", "2"]), 0);
    let conflict = sandbox.run(&["merge", "both", "all", "again", "--any-build"]);
    assert_exit(&conflict, 1);
    assert!(text(&conflict.stderr).contains("measured twice"), "{}", text(&conflict.stderr));
    assert!(!sandbox.path("both").exists());
}

#[test]
fn a_run_that_stays_disturbed_has_no_result() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    // No packet arrives within this bound.
    let strict = "lateness_p99 = \"1us\"\nattempts = 2";
    let file = sandbox.write_scenario(&SHORT_SCENARIO.replace("lateness_p99 = \"1h\"", strict));
    let args = ["run", &file, "--out", "out", "--repetitions", "1", "--filter", "scheme=plain"];
    let output = sandbox.run(&args);
    assert_exit(&output, 1);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("disturbed, retrying: scheme=plain #1 (attempt 1): the link was late"),
        "{stderr}"
    );
    assert!(stderr.contains("disturbed in each of 2 attempts"), "{stderr}");
    assert_eq!(sandbox.results("out"), []);
    let rejected = std::fs::read_to_string(sandbox.path("out/rejected.jsonl")).unwrap();
    assert_eq!(rejected.lines().count(), 2);

    let kept_output = sandbox.run(&[&args[..], &["--disturbed", "keep"]].concat());
    assert_exit(&kept_output, 0);
    let results = sandbox.results("out");
    assert_eq!((results.len(), results[0].attempt, results[0].disturbed.len()), (1, 2, 1));
    // It counts in comparisons only on request.
    let refused_output = sandbox.run(&["compare", "out", "out"]);
    assert_exit(&refused_output, 2);
    let stderr = text(&refused_output.stderr);
    assert!(stderr.contains("all runs of out (1) were disturbed; `--disturbed keep`"), "{stderr}");
    let compared_output = sandbox.run(&["compare", "out", "out", "--disturbed", "keep"]);
    assert_exit(&compared_output, 0);
    assert!(text(&compared_output.stdout).contains("median"), "{}", text(&compared_output.stdout));
}

/// Waits for the process that runs a trial of this campaign, and returns its ID.
fn wait_for_trial_process(campaign: &Child) -> Pid {
    let deadline = Instant::now() + TRIAL_START_TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "no process runs a trial after {TRIAL_START_TIMEOUT:?}");
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let read =
                |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            // Fields after the name in parentheses: state, parent.
            let stat = read("stat");
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
            let is_trial = read("cmdline").ends_with("\0lab\0trial\0");
            if is_trial && parent == Some(&campaign.id().to_string()) {
                let id = entry.file_name().to_string_lossy().parse().unwrap();
                return Pid::from_raw(id).unwrap();
            }
        }
        // The start of a process is no event: look again, without a processor of its own.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_reproduction_or_matrix_that_is_stopped_before_its_first_result_exits_like_any_other() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    for words in [&["reproduce", "all"][..], &["matrix"]] {
        let args = [words, &["--quick", "--jobs", "1", "--out", "out"]].concat();
        let child = sandbox.lab(&args).spawn().unwrap();
        wait_for_trial_process(&child);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_exit(&output, 130);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("the same command resumes"), "{words:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{words:?}: no report");
        std::fs::remove_dir_all(sandbox.path("out")).unwrap();
    }
}

#[test]
fn a_crash_loses_only_its_own_trial() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file =
        sandbox.write_scenario(&SHORT_SCENARIO.replace("settle = \"0\"", "settle = \"500ms\""));
    let child = sandbox.lab(&["run", &file, "--out", "out", "--repetitions", "2"]).spawn().unwrap();
    kill_process(wait_for_trial_process(&child), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 1);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("no result: scheme=plain #1: its process exited: signal: 9"),
        "{stderr}"
    );
    assert_eq!(sandbox.results("out").len(), 3);
    assert!(sandbox.is_clean());
    let tmp_path = sandbox.path("tmp").display().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline);
        assert!(!cmdline.contains(&tmp_path), "left over: {cmdline}");
    }
}
