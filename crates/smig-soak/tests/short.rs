//! The soak in its short form: a few runs of small transfers, judged by the program itself.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_few_runs_are_right_and_leave_nothing() {
    let ran = Command::new(env!("CARGO_BIN_EXE_smig-soak"))
        .args(["--runs", "8", "--seed", "11", "--size", "8MB", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}\n{said}", ran.status);
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let count = |path: &str| result.pointer(path).and_then(Value::as_u64).unwrap();
    assert_eq!(result["violations"], Value::Array(Vec::new()));
    assert_eq!(count("/runs"), 8);
    assert_eq!(count("/downloads/wrong") + count("/uploads/wrong") + count("/small/wrong"), 0);
    // It did what it is for.
    assert!(count("/downloads/complete") > 0 && count("/uploads/complete") > 0, "{result:#}");
    assert!(count("/client/moves_made") + count("/server/moves_made") > 0, "{result:#}");
    assert_eq!(result["residue"]["before"], result["residue"]["after"]);
}

#[test]
fn a_wrong_command_line_says_what_is_wrong() {
    for (args, words) in [
        (["--size", "5TB"], "unknown unit \"TB\""),
        (["--size", "lots"], "not a number of bytes"),
        (["--runs", "0"], "at least 1"),
    ] {
        let ran = Command::new(env!("CARGO_BIN_EXE_smig-soak")).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
