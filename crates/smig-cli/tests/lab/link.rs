//! Users' commands beside two hosts.

use crate::support::{Place, assert_exit, can_run, text};

#[test]
fn a_command_has_two_hosts_and_its_own_end() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    // Any process that keeps standard output open after the command has ended would block this test.
    let script = "readlink /proc/self/ns/net; \
        for host in \"$SMIG_LAB_SERVER\" \"$SMIG_LAB_CLIENT\"; do $host readlink /proc/self/ns/net; done; \
        echo $SMIG_LAB_SERVER_ADDRESS $SMIG_LAB_CLIENT_ADDRESS; \
        $SMIG_LAB_SERVER sleep 100000 2>/dev/null & exit 7";
    let output = place.run(&["link", "paper-wired", "--", "sh", "-c", script]);
    assert_exit(&output, 7);
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let [own, server, client, addresses] = lines[..] else { panic!("{said}") };
    assert_eq!(addresses, "10.99.0.1 10.99.0.2");
    let outside = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(own, outside.to_str().unwrap());
    assert!(own != server && own != client && server != client, "{said}");
    // Any line may match: the background command may fail to enter its removed host, and print an
    // incomplete line.
    let said = text(&output.stderr);
    assert!(said.lines().any(|line| line.starts_with("paper-wired: to the client ")), "{said}");
}

#[test]
fn what_ends_a_command_is_told() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let link = |more: &[&str]| place.run(&[&["link", "paper-wired", "-q"], more].concat());
    let said = link(&["--", "sh", "-c", "kill -KILL $$"]);
    assert_exit(&said, 128 + 9);
    let sleeping = link(&["--time-limit", "50ms", "--", "sh", "-c", "sleep 100000 & wait"]);
    assert_exit(&sleeping, 124);
    let missing = link(&["--", "./no-such-program"]);
    assert_exit(&missing, 127);
    assert!(text(&missing.stderr).contains("./no-such-program"));
}

#[test]
fn a_link_that_is_not_known_is_refused() {
    let place = Place::new();
    let output = place.run(&["link", "paper-wird", "--", "touch", "began"]);
    assert_exit(&output, 2);
    assert!(text(&output.stderr).contains("Did you mean paper-wired?"));
    assert!(!place.path("began").exists());
}
