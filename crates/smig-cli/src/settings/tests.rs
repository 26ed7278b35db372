//! Tests of the settings table, the example file and the faults of a file.

use std::time::Duration;

use super::*;

/// Returns the example file with every key uncommented.
fn uncomment_keys() -> String {
    let lines = example();
    let lines = lines.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_parses_with_and_without_its_keys_uncommented() {
    let mut settings = Settings::default();
    SCHEMA.apply_text(&example(), &mut settings).unwrap();
    assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));

    SCHEMA.apply_text(&uncomment_keys(), &mut settings).unwrap();
    assert_eq!(uncomment_keys().matches(" = ").count(), all_settings().count());
    // Keys without a default show an example value.
    settings.root = None;
    settings.certificate = None;
    settings.key = None;
    let defaults = Settings::default();
    for setting in all_settings().filter(|setting| setting.key != "server.listen") {
        assert_eq!((setting.show)(&settings), (setting.show)(&defaults), "{}", setting.key);
    }
}

#[test]
fn names_are_unique_and_in_known_sections() {
    let mut flags: Vec<_> = all_settings().map(|setting| setting.flag).collect();
    let mut keys: Vec<_> = all_settings().map(|setting| setting.key).collect();
    flags.sort_unstable();
    keys.sort_unstable();
    assert!(flags.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    for setting in all_settings() {
        assert!(
            SCHEMA.sections.iter().any(|(name, _)| *name == setting.section()),
            "{}",
            setting.key
        );
    }
}

fn faults(text: &str) -> Vec<String> {
    let faults = SCHEMA.apply_text(text, &mut Settings::default()).unwrap_err();
    faults.into_iter().map(|fault| format!("{}: {}", fault.line, fault.message)).collect()
}

#[test]
fn values_of_every_kind_are_parsed() {
    let mut settings = Settings::default();
    let text = "[migration]\nmin_size = '1MiB'\nmin_concurrent = 2\nmin_transfer_time = '50ms'\n\
                [server]\nhost = ['a.example', 'b.example']\ncleartext = true\n\
                cert = 'c.pem'\n[http2]\nstream_window = 70_000\n";
    SCHEMA.apply_text(text, &mut settings).unwrap();
    assert_eq!(settings.migration.policy.min_size, 1 << 20);
    assert_eq!(settings.migration.policy.min_concurrent, 2);
    assert_eq!(settings.migration.policy.min_transfer_time, Duration::from_millis(50));
    assert_eq!(settings.hosts, ["a.example", "b.example"]);
    assert_eq!(settings.security, ListenSecurity::Cleartext);
    assert_eq!(settings.certificate, Some("c.pem".into()));
    assert_eq!(settings.engine.stream_window, 70_000);
}

#[test]
fn a_flag_that_enables_tls_takes_precedence_over_both_kinds_of_cleartext() {
    let set = |key: &str, value: &str, settings: &mut Settings| {
        let setting = all_settings().find(|setting| setting.key == key).unwrap();
        (setting.set)(settings, &[value.to_owned()]).unwrap();
        settings.security
    };
    let (cleartext, trusted) = ("server.cleartext", "server.trust_cleartext");
    for key in [cleartext, trusted] {
        let mut settings = Settings::default();
        assert_ne!(set(key, "true", &mut settings), ListenSecurity::Tls);
        assert_eq!(set(cleartext, "false", &mut settings), ListenSecurity::Tls, "{key}");
    }
    let mut settings = Settings::default();
    set(cleartext, "true", &mut settings);
    assert_eq!(set(trusted, "false", &mut settings), ListenSecurity::Cleartext);
    assert_eq!(set(trusted, "true", &mut settings), ListenSecurity::TrustedCleartext);
    assert_eq!(set(trusted, "false", &mut settings), ListenSecurity::Tls);
}

#[test]
fn an_unknown_key_is_reported_with_its_line_and_a_suggestion() {
    assert_eq!(
        faults("[migration]\nmin_sise = 5\n"),
        ["2: unknown key migration.min_sise; did you mean migration.min_size?"]
    );
    assert_eq!(
        faults("[server]\nmin_size = 5\n"),
        ["2: unknown key server.min_size; did you mean migration.min_size?"]
    );
    assert_eq!(
        faults("\n[migratoin]\n"),
        ["2: unknown section [migratoin]; did you mean [migration]?"]
    );
    assert_eq!(
        faults("listen = 'x'\n"),
        ["1: listen belongs in a section; write [server] above it"]
    );
    assert_eq!(
        faults("[[server]]\nworkers = 1\n"),
        ["1: server is a section; write [server]"],
        "an array of tables is none"
    );
}

#[test]
fn wrong_types_and_values_are_all_reported_in_order() {
    assert_eq!(
        faults(
            "[migration]\nmin_transfer_time = 20\nmin_size = 'much'\n[smig]\nmax_connections = 17\n"
        ),
        [
            "2: migration.min_transfer_time: invalid type: integer, expected a string with a unit, such as \
             \"500ms\", \"10s\" or \"2min\"",
            "3: migration.min_size: \"much\" is not a number of bytes, such as 65536 or \"64KiB\"",
            "5: smig.max_connections: 17 is not between 1 and 16",
        ]
    );
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    let [fault] = &faults("[migration]\nmin_size = \n")[..] else { panic!("one fault expected") };
    assert!(fault.starts_with("2: "), "{fault}");
}
