//! The configuration file and smaller commands.

use crate::support::{Place, assert_exit, text};

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_one() {
    let place = Place::new();
    let file = place.shown("smig.toml");
    std::fs::write(&file, "[migration]\n\nmin_sise = \"1MiB\"\n").unwrap();
    let expected = format!(
        "error: {file}:3: unknown key migration.min_sise; did you mean migration.min_size?\n"
    );
    let check = place.run(&["config", "check", &file]);
    assert_exit(&check, 2);
    assert_eq!(text(&check.stderr), expected);
    let serve = place.run(&["serve", ".", "--config", &file]);
    assert_exit(&serve, 2);
    assert_eq!(text(&serve.stderr), expected);
}

#[test]
fn the_example_is_good() {
    let place = Place::new();
    let example = place.run(&["config", "example"]);
    assert_exit(&example, 0);
    let file = place.shown("smig.toml");
    std::fs::write(&file, &example.stdout).unwrap();
    assert_exit(&place.run(&["config", "check", &file]), 0);
}

#[test]
fn flags_go_before_the_file() {
    let place = Place::new();
    place.file("file", 10);
    let file = place.shown("smig.toml");
    let www = place.shown("www");
    std::fs::write(
        &file,
        format!("[server]\nroot = {www:?}\ncleartext = true\n[files]\nlisting = \"on\"\n"),
    )
    .unwrap();
    let clear = place.serve(&["--config", &file]);
    assert!(clear.origin.starts_with("http://"));
    let listing = place.get(&clear, &[], &[""]);
    assert_exit(&listing, 0);
    assert!(text(&listing.stdout).contains("file"));
    let tls = place.serve(&["--config", &file, "--cleartext=false", "--listing", "off"]);
    assert!(tls.origin.starts_with("https://"));
    assert_exit(&place.get(&tls, &[], &[""]), 22);
}

#[test]
fn help_and_completions() {
    let place = Place::new();
    for command in ["serve", "get", "gateway", "probe", "config", "completions"] {
        let help = place.run(&[command, "--help"]);
        assert_exit(&help, 0);
        assert!(text(&help.stdout).contains("Examples:"), "{command} --help has no examples");
    }
    assert!(text(&place.run(&["get", "-h"]).stdout).contains("60  the certificate is not trusted"));
    assert!(text(&place.run(&["--version"]).stdout).starts_with("smig 0."));
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]);
        assert_exit(&script, 0);
        assert!(text(&script.stdout).contains("min-concurrent"), "{shell}");
    }
}
