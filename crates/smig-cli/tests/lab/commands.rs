//! Servers and clients that are commands of the user.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use smig_lab::workload::{ObjectResult, Outcome};

use crate::support::{Sandbox, assert_exit, can_run, text};

/// Time for the kernel to end processes whose parent has ended.
const PROCESS_END_TIMEOUT: Duration = Duration::from_secs(10);

const SERVER_SCRIPT: &str = include_str!("../../../../scenarios/commands/server.py");
const LOAD_SCRIPT: &str = include_str!("../../../../scenarios/commands/load.py");

/// The programs of the example on a fast link.
const COMMANDS_SCENARIO: &str = "
repetitions = 1
[link.both]
rate = \"100 Mbit/s\"
delay_ms = 1
queue = { packets = 200 }
[servers.main]
kind = \"command\"
[servers.main.command]
argv = [\"python3\", \"{dir}/server.py\", \"{port}\", \"{root}\", \"{cert}\", \"{key}\"]
ready = { line = \"serving\" }
version = [\"python3\", \"--version\"]
[clients.load]
kind = \"command\"
[clients.load.command]
argv = [\"python3\", \"{dir}/load.py\", \"{url}\", \"3\", \"{cert}\"]
result = \"json-lines\"
[clients.user]
kind = \"http1\"
[workload]
settle = \"0\"
time_limit = \"5min\"
[workload.transfers.small]
client = \"load\"
size = \"10kB\"
count = 2
every = \"10ms\"
[workload.transfers.big]
client = \"user\"
size = \"500kB\"
[accept]
lateness_p99 = \"1h\"
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("server.py"), SERVER_SCRIPT).unwrap();
    std::fs::write(sandbox.path("load.py"), LOAD_SCRIPT).unwrap();
    sandbox
}

/// Starts the server from a shell that leaves two processes behind, one in its own session.
fn with_leftover_processes(seconds: u32) -> String {
    COMMANDS_SCENARIO.replace(
        "argv = [\"python3\", \"{dir}/server.py\",",
        &format!(
            "argv = [\"sh\", \"-c\", 'sleep {seconds} & setsid sleep {seconds} & exec python3 \"$@\"', \"sh\",
             \"{{dir}}/server.py\","
        ),
    )
}

/// Returns the number of processes `sleep SECONDS` on this machine.
fn count_sleepers(seconds: u32) -> usize {
    let words = format!("sleep\0{seconds}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let cmdline = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline"));
    processes.map(cmdline).filter(|line| line.as_ref().is_ok_and(|line| *line == words)).count()
}

#[track_caller]
fn wait_for_sleepers(seconds: u32, number: usize) {
    let started_at = Instant::now();
    while count_sleepers(seconds) != number {
        let found = count_sleepers(seconds);
        assert!(
            started_at.elapsed() < PROCESS_END_TIMEOUT,
            "{found} instead of {number} \"sleep {seconds}\""
        );
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_process_outlives_a_run() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    let file = sandbox.write_scenario(&with_leftover_processes(86_391));
    assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
    assert_eq!(sandbox.results("out").len(), 1);
    wait_for_sleepers(86_391, 0);
}

/// Starts a campaign that never ends, and waits until its first server has left two processes behind.
fn start_endless(sandbox: &Sandbox, seconds: u32) -> Child {
    let scenario = with_leftover_processes(seconds).replace("settle = \"0\"", "settle = \"1h\"");
    let file = sandbox.write_scenario(&scenario.replace("repetitions = 1", "repetitions = 2"));
    let campaign = sandbox.lab(&["run", &file, "--out", "out"]).spawn().unwrap();
    wait_for_sleepers(seconds, 2);
    campaign
}

#[test]
fn no_process_outlives_an_interrupted_run() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    let mut campaign = start_endless(&sandbox, 86_392);
    kill_process(Pid::from_child(&campaign), Signal::INT).unwrap();
    assert_eq!(campaign.wait().unwrap().code(), Some(130));
    wait_for_sleepers(86_392, 0);
}

#[test]
fn no_process_outlives_a_killed_run() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    let mut campaign = start_endless(&sandbox, 86_393);
    campaign.kill().unwrap();
    campaign.wait().unwrap();
    wait_for_sleepers(86_393, 0);
}

#[test]
fn a_scenario_can_have_its_own_server_and_load_generator() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    // The other variant has no TLS; its readiness is its port, and its client reports an exit code.
    let file = sandbox.write_scenario(&format!(
        "{COMMANDS_SCENARIO}
[variants.tls.yes]
[variants.tls.no]
workload.transfers.big.client = \"load\"
[variants.tls.no.clients.user]
kind = \"command\"
command.argv = [\"true\", \"{{url}}\"]
[variants.tls.no.clients.load]
kind = \"command\"
command.argv = [\"python3\", \"-c\", \"import os, urllib.request as r; r.urlopen(os.environ['URL']).read()\"]
command.environment = {{ URL = \"{{origin}}/{{size}}.bin\" }}
[variants.tls.no.servers.main]
kind = \"command\"
command.argv = [\"python3\", \"{{dir}}/server.py\", \"{{port}}\", \"{{root}}\"]
command.tls = false
"
    ));
    let output = sandbox.run(&["run", &file, "--out", "out"]);
    assert_exit(&output, 0);
    let results = sandbox.results("out");
    assert_eq!(results.len(), 2);
    for result in &results {
        let tls = result.id.condition.level("tls").unwrap();
        let objects = &result.observation.objects;
        let numbers: Vec<_> =
            objects.iter().filter(|object| object.name == "small").map(|o| o.number).collect();
        // Twice three objects of one process, or two processes with one object.
        assert_eq!(numbers.len(), if tls == "yes" { 6 } else { 2 }, "{objects:#?}");
        assert!((0..).zip(&numbers).all(|(index, number)| index == *number), "{numbers:?}");
        for object in objects {
            assert_eq!(object.outcome, Outcome::Complete, "{tls}: {object:#?}");
            assert_eq!(object.bytes, object.size, "{tls}");
            assert!(object.started_ns < object.ended_ns, "{tls}: {object:#?}");
        }
        assert!(result.link.to_client.delivered_bytes > 500_000, "{tls}");
        assert!(result.versions["python3 --version"].starts_with("Python 3"));
    }
    assert!(sandbox.is_clean());
}

/// The program beside the scenario is part of what is measured.
#[test]
fn a_changed_program_makes_another_scenario() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    let file = sandbox.write_scenario(COMMANDS_SCENARIO);
    assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
    std::fs::write(sandbox.path("load.py"), format!("{LOAD_SCRIPT}# changed\n")).unwrap();
    let output = sandbox.run(&["run", &file, "--out", "out"]);
    assert!(text(&output.stderr).contains("has results of another scenario"), "{output:?}");
}

#[test]
fn a_server_gets_its_files_environment_and_stop_signal() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    // Writes its arguments beside the scenario, and creates a file when it is stopped.
    let server = "\
import os, signal, sys
def stop(*_):
    open(os.environ['OUT'] + '/stopped', 'w').close()
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
words = open(sys.argv[1]).read()
open(os.environ['OUT'] + '/arguments', 'w').write(words)
open(sys.argv[2], 'w').write('a line of its own log\\n')
sys.argv = ['server.py', *words.split()]
exec(open(os.environ['OUT'] + '/server.py').read())
";
    std::fs::write(sandbox.path("wrapper.py"), server).unwrap();
    let file = sandbox.write_scenario(&COMMANDS_SCENARIO.replace(
        "argv = [\"python3\", \"{dir}/server.py\", \"{port}\", \"{root}\", \"{cert}\", \"{key}\"]",
        "argv = [\"python3\", \"{dir}/wrapper.py\", \"{scratch}/words\", \"{log}\"]
         environment = { OUT = \"{dir}\" }
         files = { words = \"{port} {root} {cert} {key}\" }
         stop = \"INT\"",
    ));
    let output = sandbox.run(&["run", &file, "--out", "out"]);
    assert_exit(&output, 0);
    let arguments = std::fs::read_to_string(sandbox.path("arguments")).unwrap();
    assert!(arguments.starts_with("8443 /") && arguments.ends_with("key.pem"), "{arguments}");
    assert!(sandbox.path("stopped").exists(), "SIGINT has not arrived");
    assert!(sandbox.is_clean());
}

/// A client whose requests reach their server through `smig agent` on its own host, and `smig gateway`.
const AGENT_SCENARIO: &str = r#"
link = "paper-wired"
[servers.main]
kind = "smig"
[servers.gateway]
kind = "command"
[servers.gateway.command]
argv = ["{smig}", "gateway", "--config", "{scratch}/gateway.toml"]
[servers.gateway.command.files]
"gateway.toml" = '''
[[listen]]
address = "{addr}:{port}"
[[certificate]]
chain = "{cert}"
key = "{key}"
[forward_proxy]
users = { test = "sha256:19818c00e27a53819a4ce1341ee0794353501110ebecd1c9884db188843988d0" }
allow = ["10.99.0.1"]
'''
[servers.agent]
kind = "command"
host = "client"
[servers.agent.command]
argv = ["{smig}", "agent", "--via", "https://{gateway}", "--cacert", "{cert}", "--token-file", "{scratch}/token",
    "--listen", "none", "--forward", "{addr}:{port}=tcp://{main}"]
files = { token = "mosaic" }
[clients.user]
kind = "h2"
server = "agent"
[workload.transfers.one]
size = "100kB"
[accept]
lateness_p99 = "1h"
"#;

#[test]
fn an_agent_on_the_clients_host_uses_the_link_for_them() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let file = sandbox.write_scenario(AGENT_SCENARIO);
    assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
    let result = &sandbox.results("out")[0];
    assert_eq!(result.observation.objects[0].outcome, Outcome::Complete, "{result:#?}");
    assert!(result.link.to_client.delivered_bytes > 100_000, "{:#?}", result.link);
    assert!(sandbox.is_clean());
}

#[test]
fn failing_commands_report_why() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    let load = "argv = [\"python3\", \"{dir}/load.py\", \"{url}\", \"3\", \"{cert}\"]";
    let server = "argv = [\"python3\", \"{dir}/server.py\",";
    for (pattern, replacement, expected) in [
        (
            load,
            "argv = [\"no-such-client\", \"{url}\"]",
            "clients.load.command.argv: there is no program \"no-such-client\"; install it",
        ),
        (
            server,
            "argv = [\"{dir}/server.py\", ",
            "servers.main.command.argv: there is no program \"/",
        ),
        (server, "argv = [\"python3\", \"-c\", \"print('no licence'); exit(3)\", ", "no licence"),
    ] {
        let file = sandbox.write_scenario(&COMMANDS_SCENARIO.replace(pattern, replacement));
        let output = sandbox.run(&["run", &file, "--out", "failed"]);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(expected), "{expected}: {}", text(&output.stderr));
    }
    // A client's failure is the outcome of its object.
    for (replacement, expected) in [
        (
            "argv = [\"python3\", \"-c\", \"raise SystemExit('no {url}')\"]",
            "exit status: 1: no https://",
        ),
        ("argv = [\"echo\", \"{url}\"]", "line 1 of its output: expected value"),
        ("argv = [\"true\", \"{url}\"]", "it has printed no object"),
    ] {
        let file = sandbox.write_scenario(&COMMANDS_SCENARIO.replace(load, replacement));
        let _ = std::fs::remove_dir_all(sandbox.path("out"));
        assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
        let objects = &sandbox.results("out")[0].observation.objects;
        let small: Vec<_> = objects.iter().filter(|object| object.name == "small").collect();
        assert_eq!(small.len(), 2);
        for object in small {
            let Outcome::Failed(why) = &object.outcome else { panic!("{object:#?}") };
            assert!(why.contains(expected), "{why}");
        }
    }
    assert!(sandbox.is_clean());
}

#[test]
fn a_command_that_does_not_end_is_killed_with_the_run() {
    if !can_run() {
        return;
    }
    let sandbox = sandbox();
    let load = "argv = [\"python3\", \"{dir}/load.py\", \"{url}\", \"3\", \"{cert}\"]";
    // The shell, its child that holds the output open, and one in a session of its own.
    let endless = "argv = [\"sh\", \"-c\", \"sleep 86394 & setsid sleep 86394 & wait\", \"{url}\"]";
    let scenario = COMMANDS_SCENARIO.replace(load, endless).replace("\"5min\"", "\"1s\"");
    let file = sandbox.write_scenario(&scenario);
    assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
    let objects = &sandbox.results("out")[0].observation.objects;
    let ended = |object: &&ObjectResult| object.outcome == Outcome::TimedOut;
    assert_eq!(objects.iter().filter(ended).count(), 2, "{objects:#?}");
    wait_for_sleepers(86_394, 0);
    assert!(sandbox.is_clean());
}

/// Runs the example with another client for its two small objects; returns their results.
fn small_objects(argv: &str, format: &str, limit: &str) -> Vec<ObjectResult> {
    let sandbox = sandbox();
    let load = "argv = [\"python3\", \"{dir}/load.py\", \"{url}\", \"3\", \"{cert}\"]";
    let scenario = COMMANDS_SCENARIO.replace(load, argv).replace("\"5min\"", limit);
    let file = sandbox.write_scenario(&scenario.replace("result = \"json-lines\"", format));
    assert_exit(&sandbox.run(&["run", &file, "--out", "out"]), 0);
    let objects = sandbox.results("out").remove(0).observation.objects;
    objects.into_iter().filter(|object| object.name == "small").collect()
}

#[test]
fn a_command_that_prints_without_end_is_killed() {
    if !can_run() {
        return;
    }
    let argv = "argv = [\"timeout\", \"60\", \"yes\", \"{url}\"]";
    let objects = small_objects(argv, "result = \"json-lines\"", "\"5min\"");
    let why = Outcome::Failed("its output is more than 64 MiB".into());
    assert_eq!(objects.iter().filter(|object| object.outcome == why).count(), 2, "{objects:#?}");
}

#[test]
fn objects_reported_before_the_time_limit_count() {
    if !can_run() {
        return;
    }
    let argv = "argv = [\"sh\", \"-c\", '''
        line=\"{\\\"end_ms\\\": 0, \\\"bytes\\\": 10000}\"
        echo \"$line\"; echo \"$line\"; echo -n \"{\"; exec sleep 86400''', \"{url}\"]";
    let objects = small_objects(argv, "result = \"json-lines\"", "\"5s\"");
    let with = |outcome| objects.iter().filter(|object| object.outcome == outcome).count();
    assert_eq!((with(Outcome::Complete), with(Outcome::TimedOut)), (4, 2), "{objects:#?}");
}

#[test]
fn a_command_ends_with_its_first_process() {
    if !can_run() {
        return;
    }
    for format in ["result = \"json-lines\"", ""] {
        let argv = "argv = [\"sh\", \"-c\", '''
            sleep 86395 &
            echo \"{\\\"end_ms\\\": 0, \\\"bytes\\\": 10000}\"''', \"{url}\"]";
        let objects = small_objects(argv, format, "\"20s\"");
        assert_eq!(objects.len(), 2);
        for object in objects {
            assert_eq!(object.outcome, Outcome::Complete, "{format}");
        }
    }
    wait_for_sleepers(86_395, 0);
}

#[test]
fn the_example_of_the_documentation_runs() {
    if !can_run() {
        return;
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/commands.toml");
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["run", example, "--out", "out", "--disturbed", "keep"]);
    assert_exit(&output, 0);
    let results = sandbox.results("out");
    assert_eq!(results.len(), 2);
    for result in results {
        let objects = result.observation.objects;
        assert_eq!(objects.len(), 21);
        assert!(objects.iter().all(|object| object.outcome == Outcome::Complete), "{objects:#?}");
    }
}

#[test]
fn commands_can_be_shown_without_a_run() {
    let sandbox = sandbox();
    let mut scenario =
        COMMANDS_SCENARIO.replace("ready =", "environment = { LEVEL = \"2\" }\nready =");
    scenario += "[variants.a.b]\n";
    let file = sandbox.write_scenario(&scenario);
    let output = sandbox.run(&["run", &file, "--show-config"]);
    assert_exit(&output, 0);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("$ LEVEL=2 /"), "{stdout}");
    assert!(
        stdout.contains("server.py 8443 RUN/files RUN/certificate.pem RUN/key.pem"),
        "{stdout}"
    );
}
