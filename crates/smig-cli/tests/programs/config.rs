//! The configuration file and smaller commands.

use crate::support::{Sandbox, assert_exit, text};

#[test]
fn an_unknown_key_is_reported_with_its_line_and_a_suggestion() {
    let sandbox = Sandbox::new();
    let file = sandbox.path_text("smig.toml");
    std::fs::write(&file, "[migration]\n\nmin_sise = \"1MiB\"\n").unwrap();
    let expected = format!(
        "error: {file}:3: unknown key migration.min_sise; did you mean migration.min_size?\n"
    );
    let check = sandbox.run(&["config", "check", &file]);
    assert_exit(&check, 2);
    assert_eq!(text(&check.stderr), expected);
    let serve = sandbox.run(&["serve", ".", "--config", &file]);
    assert_exit(&serve, 2);
    assert_eq!(text(&serve.stderr), expected);
}

#[test]
fn the_example_is_valid() {
    let sandbox = Sandbox::new();
    let example = sandbox.run(&["config", "example"]);
    assert_exit(&example, 0);
    let file = sandbox.path_text("smig.toml");
    std::fs::write(&file, &example.stdout).unwrap();
    assert_exit(&sandbox.run(&["config", "check", &file]), 0);
}

#[test]
fn flags_take_precedence_over_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    let file = sandbox.path_text("smig.toml");
    let www = sandbox.path_text("www");
    std::fs::write(
        &file,
        format!("[server]\nroot = {www:?}\ncleartext = true\n[files]\nlisting = \"on\"\n"),
    )
    .unwrap();
    let cleartext_server = sandbox.serve(&["--config", &file]);
    assert!(cleartext_server.origin.starts_with("http://"));
    let listing = sandbox.get(&cleartext_server, &[], &[""]);
    assert_exit(&listing, 0);
    assert!(text(&listing.stdout).contains("file"));
    let tls_server = sandbox.serve(&["--config", &file, "--cleartext=false", "--listing", "off"]);
    assert!(tls_server.origin.starts_with("https://"));
    assert_exit(&sandbox.get(&tls_server, &[], &[""]), 22);
}

#[test]
fn help_has_examples_and_completions_are_generated() {
    let sandbox = Sandbox::new();
    for command in ["serve", "get", "gateway", "probe", "config", "completions"] {
        let help = sandbox.run(&[command, "--help"]);
        assert_exit(&help, 0);
        assert!(text(&help.stdout).contains("Examples:"), "{command} --help has no examples");
    }
    assert!(
        text(&sandbox.run(&["get", "-h"]).stdout).contains("60  the certificate is not trusted")
    );
    assert!(text(&sandbox.run(&["--version"]).stdout).starts_with("smig 0."));
    for shell in ["bash", "zsh", "fish"] {
        let script = sandbox.run(&["completions", shell]);
        assert_exit(&script, 0);
        assert!(text(&script.stdout).contains("min-concurrent"), "{shell}");
    }
}
