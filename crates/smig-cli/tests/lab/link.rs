//! `smig lab link`: a user's command, with two hosts joined by an emulated link.

use std::time::Duration;

use smig_lab::workload::Outcome;

use crate::support::{SHORT_SCENARIO, Sandbox, assert_exit, can_run, text};

#[test]
fn a_command_gets_two_hosts_and_its_exit_code_is_returned() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    // Any process that keeps standard output open after the command has ended would block this test.
    let script = "readlink /proc/self/ns/net; \
        for host in \"$SMIG_LAB_SERVER\" \"$SMIG_LAB_CLIENT\"; do $host readlink /proc/self/ns/net; done; \
        echo $SMIG_LAB_SERVER_ADDRESS $SMIG_LAB_CLIENT_ADDRESS; \
        $SMIG_LAB_SERVER sleep 100000 2>/dev/null & exit 7";
    let output = sandbox.run(&["link", "paper-wired", "--", "sh", "-c", script]);
    assert_exit(&output, 7);
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    let [command_namespace, server_namespace, client_namespace, addresses] = lines[..] else {
        panic!("{stdout}")
    };
    assert_eq!(addresses, "10.99.0.1 10.99.0.2");
    let test_namespace = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(command_namespace, test_namespace.to_str().unwrap());
    assert!(
        command_namespace != server_namespace
            && command_namespace != client_namespace
            && server_namespace != client_namespace,
        "{stdout}"
    );
    // Any line may match: the background command may fail to enter its removed host, and print an
    // incomplete line.
    let stderr = text(&output.stderr);
    assert!(stderr.lines().any(|line| line.starts_with("paper-wired: to the client ")), "{stderr}");
}

#[test]
fn the_exit_code_shows_how_a_command_ended() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let link = |more: &[&str]| sandbox.run(&[&["link", "paper-wired", "-q"], more].concat());
    let killed = link(&["--", "sh", "-c", "kill -KILL $$"]);
    assert_exit(&killed, 128 + 9);
    let sleeping = link(&["--time-limit", "50ms", "--", "sh", "-c", "sleep 100000 & wait"]);
    assert_exit(&sleeping, 124);
    let missing = link(&["--", "./no-such-program"]);
    assert_exit(&missing, 127);
    assert!(text(&missing.stderr).contains("./no-such-program"));
}

#[test]
fn an_unknown_link_is_rejected() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["link", "paper-wird", "--", "touch", "began"]);
    assert_exit(&output, 2);
    assert!(text(&output.stderr).contains("Did you mean paper-wired?"));
    assert!(!sandbox.path("began").exists());
}

#[test]
fn a_download_waits_while_the_clients_device_is_down() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    let (down, up) = (Duration::from_millis(200), Duration::from_millis(1_200));
    let scenario = SHORT_SCENARIO
        .replace("100 Mbit/s", "5 Mbit/s")
        .replace("10kB", "500kB")
        .replace("repetitions = 3", "repetitions = 1")
        .replace(
            "[servers.main]",
            &format!(
                "[[events]]\nat = \"{}ms\"\ndo = \"down\"\n[[events]]\nat = \"{}ms\"\ndo = \"up\"\n[servers.main]",
                down.as_millis(),
                up.as_millis()
            ),
        );
    let file = sandbox.write_scenario(&scenario);
    assert_exit(&sandbox.run(&["run", &file, "--out", "out", "--filter", "scheme=plain"]), 0);
    let results = sandbox.results("out");
    let [result] = &results[..] else { panic!("{} results", results.len()) };
    let [object] = &result.observation.objects[..] else { panic!("{:?}", result.observation) };
    assert_eq!((&object.outcome, object.bytes), (&Outcome::Complete, 500_000));
    // What arrived meanwhile was dropped, as the scenario asks for.
    assert_eq!(result.device_drops, 0);
    // At 5 Mbit/s it takes 0.8 s: the device was down before it was complete.
    assert!(Duration::from_nanos(object.ended_ns) > up, "{object:?}");
    assert!(sandbox.is_clean());
}
