//! The configuration file: TOML by the table's keys, and messages that name file, line and key.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::Kind;
use super::{SECTIONS, Setting, Settings, all};

/// Words that differ by more than this share of their letters are no typing errors.
const LIKENESS: f64 = 0.7;

/// Reads a configuration file over the settings.
///
/// # Errors
/// Everything that is wrong with the file, one line each, `FILE:LINE: what`.
pub(crate) fn load(path: &Path, settings: &mut Settings) -> Result<(), String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the configuration file {shown}: {error}"))?;
    parse(&text, settings).map_err(|faults| {
        let mut lines = String::new();
        for fault in faults {
            let _ = writeln!(lines, "{shown}:{}: {}", fault.line, fault.what);
        }
        lines.truncate(lines.trim_end().len());
        lines
    })
}

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    line: usize,
    what: String,
}

/// Applies a file's text; reports every fault, in the file's order.
pub(super) fn parse(text: &str, settings: &mut Settings) -> Result<(), Vec<Fault>> {
    let line =
        |span: Range<usize>| 1 + text.get(..span.start).unwrap_or(text).matches('\n').count();
    let document = DeTable::parse(text).map_err(|error| {
        let what = error.message().to_owned();
        vec![Fault { line: error.span().map_or(1, line), what }]
    })?;
    let mut faults = Vec::new();
    for (section, content) in document.get_ref() {
        let at = line(section.span());
        let known = SECTIONS.iter().any(|(name, _)| *name == section.get_ref().as_ref());
        match content.get_ref() {
            DeValue::Table(table) if known => {
                for (name, value) in table {
                    let at = line(name.span());
                    let key = format!("{}.{}", section.get_ref(), name.get_ref());
                    if let Err(what) = apply(&key, value, settings) {
                        faults.push(Fault { line: at, what });
                    }
                }
            }
            DeValue::Table(_) => {
                faults.push(Fault { line: at, what: unknown_section(section.get_ref()) });
            }
            _ => faults.push(Fault { line: at, what: outside(section.get_ref()) }),
        }
    }
    faults.sort_by_key(|fault| fault.line);
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn apply(key: &str, value: &Spanned<DeValue<'_>>, settings: &mut Settings) -> Result<(), String> {
    let Some(setting) = all().find(|setting| setting.key == key) else {
        return Err(unknown_key(key));
    };
    let values = texts(setting.kind, value.get_ref()).ok_or_else(|| {
        let got = value.get_ref().type_str();
        format!("{key} takes {}, not this {got}", setting.kind.expected())
    })?;
    (setting.set)(settings, &values).map_err(|why| format!("{key}: {why}"))
}

/// The value as text, if its type is right.
fn texts(kind: Kind, value: &DeValue<'_>) -> Option<Vec<String>> {
    let string = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
    let number = |value: &DeValue<'_>| match value {
        DeValue::Integer(integer) => {
            let digits = integer.as_str().replace('_', "");
            i64::from_str_radix(&digits, integer.radix()).ok().map(|number| number.to_string())
        }
        _ => None,
    };
    let one = match kind {
        Kind::Text | Kind::Time => string(value),
        Kind::Count => number(value),
        Kind::Size => number(value).or_else(|| string(value)),
        Kind::Switch => value.as_bool().map(|is_on| is_on.to_string()),
        Kind::List => match value {
            DeValue::Array(items) => {
                return items.iter().map(|item| string(item.get_ref())).collect();
            }
            _ => string(value),
        },
    };
    one.map(|one| vec![one])
}

fn unknown_key(key: &str) -> String {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    let likeness = |setting: &&Setting| {
        let near = strsim::jaro_winkler(name, setting.name());
        // The same name in another section is as near as can be.
        if setting.section() == section { near + 0.01 } else { near }
    };
    let nearest = all().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|setting| likeness(setting) > LIKENESS) {
        Some(setting) => format!("unknown key {key}; did you mean {}?", setting.key),
        None => format!("unknown key {key}; `smig config example` lists every key"),
    }
}

fn unknown_section(section: &str) -> String {
    let likeness = |name: &str| strsim::jaro_winkler(section, name);
    let nearest = SECTIONS.iter().max_by(|(a, _), (b, _)| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|(name, _)| likeness(name) > LIKENESS) {
        Some((name, _)) => format!("unknown section [{section}]; did you mean [{name}]?"),
        None => format!("unknown section [{section}]; `smig config example` lists every section"),
    }
}

/// A key above the first section.
fn outside(name: &str) -> String {
    match all().find(|setting| setting.name() == name) {
        Some(setting) => {
            format!("{name} belongs into a section: write [{}] above it", setting.section())
        }
        None => format!(
            "unknown key {name} outside of every section; `smig config example` lists every key"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = parse(text, &mut Settings::default()).unwrap_err();
        faults.into_iter().map(|fault| format!("{}: {}", fault.line, fault.what)).collect()
    }

    #[test]
    fn values_of_every_kind() {
        let mut settings = Settings::default();
        let text = "[policy]\nmin_size = '1MiB'\nmin_concurrent = 2\nmax_blocking = '50ms'\n\
                    [server]\nhost = ['a.example', 'b.example']\ncleartext = true\n\
                    [http2]\nstream_window = 70_000\n";
        parse(text, &mut settings).unwrap();
        assert_eq!(settings.rules.policy.min_size, 1 << 20);
        assert_eq!(settings.rules.policy.min_concurrent, 2);
        assert_eq!(settings.rules.policy.max_blocking, Duration::from_millis(50));
        assert_eq!(settings.hosts, ["a.example", "b.example"]);
        assert_eq!(settings.wire, super::super::Wire::Cleartext);
        assert_eq!(settings.engine.stream_window, 70_000);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_one() {
        assert_eq!(
            faults("[policy]\nmin_sise = 5\n"),
            ["2: unknown key policy.min_sise; did you mean policy.min_size?"]
        );
        assert_eq!(
            faults("[server]\nmin_size = 5\n"),
            ["2: unknown key server.min_size; did you mean policy.min_size?"]
        );
        assert_eq!(faults("\n[polcy]\n"), ["2: unknown section [polcy]; did you mean [policy]?"]);
        assert_eq!(
            faults("listen = 'x'\n"),
            ["1: listen belongs into a section: write [server] above it"]
        );
    }

    #[test]
    fn wrong_types_and_values_are_all_reported_in_order() {
        assert_eq!(
            faults(
                "[policy]\nmax_blocking = 20\nmin_size = 'much'\n[smig]\nmax_connections = 17\n"
            ),
            [
                "2: policy.max_blocking takes a string with a unit, such as \"500ms\", \"10s\" or \
                 \"2min\", not this integer",
                "3: policy.min_size: \"much\" is not a number of bytes, such as 65536 or \"64KiB\"",
                "5: smig.max_connections: 17 is not between 1 and 16",
            ]
        );
    }

    #[test]
    fn what_is_no_toml_has_its_line() {
        let [fault] = &faults("[policy]\nmin_size = \n")[..] else { panic!("one fault expected") };
        assert!(fault.starts_with("2: "), "{fault}");
    }
}
