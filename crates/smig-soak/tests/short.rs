//! A short soak: a few runs of small transfers, checked by the program itself.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_few_runs_pass_and_leak_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_smig-soak"))
        .args(["--runs", "8", "--seed", "11", "--size", "8MB", "--json"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |path: &str| result.pointer(path).and_then(Value::as_u64).unwrap();
    assert_eq!(result["violations"], Value::Array(Vec::new()));
    assert_eq!(count("/runs"), 8);
    // Transfers completed and streams migrated.
    assert!(count("/downloads/complete") > 0 && count("/uploads/complete") > 0, "{result:#}");
    assert!(
        count("/client/migrations_initiated") + count("/server/migrations_initiated") > 0,
        "{result:#}"
    );
    assert_eq!(result["leaks"]["before"], result["leaks"]["after"]);
}

#[test]
fn invalid_arguments_are_reported() {
    for (args, message) in [
        (["--size", "5TB"], "unknown unit \"TB\""),
        (["--size", "lots"], "not a number of bytes"),
        (["--runs", "0"], "at least 1"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_smig-soak")).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
}
