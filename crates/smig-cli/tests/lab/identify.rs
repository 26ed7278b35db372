//! `smig lab identify` with senders of this machine.

use serde_json::Value;

use crate::support::{Sandbox, assert_exit, can_run, text};

fn json_lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_sender_is_judged_by_the_queue_that_it_fills() {
    if !can_run() {
        return;
    }
    let sandbox = Sandbox::new();
    // 112 packets at 400 kbit/s. Reno doubles 10 to 20 and 40, which a queue of 100 holds.
    let args = ["identify", "reno", "--object", "50kB", "--mtu", "500", "--json", "--svg", "a.svg"];
    let output = sandbox.run(&args);
    assert_exit(&output, 0);
    let results = json_lines(&output.stdout);
    let [result] = &results[..] else { panic!("{results:?}") };
    let max_queue = result["max_queue"].as_u64().unwrap();
    assert!((9..=100).contains(&max_queue), "{result}");
    assert_eq!((&result["sender"], &result["object_bytes"]), (&"reno".into(), &50_000.into()));
    assert_eq!(result["first_drop_s"], Value::Null, "{result}");
    assert_eq!(result["program_rule"], "too-small", "by the program 100 kB are the least");
    assert_eq!(result["paper_rule"], "delay-based", "by the paper 50 kB are enough");
    let picture = std::fs::read_to_string(sandbox.path("a.svg")).unwrap();
    assert!(picture.contains("reno: packets") && picture.contains("congestion window"));
    assert!(sandbox.is_clean());
}

#[test]
fn a_sender_that_the_kernel_does_not_have_is_named_with_those_that_it_has() {
    if !can_run() {
        return;
    }
    let output = Sandbox::new().run(&["identify", "nosuchcc"]);
    assert_exit(&output, 1);
    let message = text(&output.stderr);
    assert!(message.contains("nosuchcc") && message.contains("reno"), "{message}");
}

#[test]
fn names_that_cannot_be_right_are_refused_at_once() {
    for (wrong, why) in [
        ("reno-hystart", "reno has no HyStart"),
        ("../cubic", "is no name of a congestion control"),
        ("a_very_long_name_of_it", "is no name of a congestion control"),
    ] {
        let output = Sandbox::new().run(&["identify", wrong]);
        assert_exit(&output, 2);
        assert!(text(&output.stderr).contains(why), "{wrong}: {}", text(&output.stderr));
    }
    for (flag, value) in [
        ("--mtu", "99"),
        ("--object", "big"),
        ("--rtt", "100"),
        ("--runs", "0"),
        ("--object", "100MB"),
    ] {
        assert_exit(&Sandbox::new().run(&["identify", flag, value]), 2);
    }
}
