//! Servers that the lab configures itself: commands like those of a scenario, from the files in `servers/`.

use std::net::SocketAddr;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::scenario::{ServerCommand, ServerKind, ServerSpec};

/// A server that is not ours.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BuiltIn {
    /// The command that installs it.
    pub(super) install: String,
    /// A line of its configuration that it needs only as root.
    #[serde(default)]
    as_root: String,
    /// The words for the scenario's `latency_optimization`.
    latency_optimization: Option<Switch>,
    /// Whether it needs a backend.
    #[serde(default)]
    pub(super) backend: bool,
    /// The rest is as in a scenario.
    pub(super) command: ServerCommand,
}

/// Words for a setting that is on or off.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    on: String,
    off: String,
}

pub(super) const FILES: [(ServerKind, &str); 6] = [
    (ServerKind::Nginx, include_str!("../../servers/nginx.toml")),
    (ServerKind::H2o, include_str!("../../servers/h2o.toml")),
    (ServerKind::Nghttpd, include_str!("../../servers/nghttpd.toml")),
    (ServerKind::Haproxy, include_str!("../../servers/haproxy.toml")),
    (ServerKind::Caddy, include_str!("../../servers/caddy.toml")),
    (ServerKind::Go, include_str!("../../servers/go.toml")),
];

/// The files are part of the program, and a test parses them: a fault cannot reach a user.
static ALL: LazyLock<Vec<(ServerKind, BuiltIn)>> = LazyLock::new(|| {
    let parse = |(kind, text)| {
        let server = toml::from_str(text);
        (kind, server.unwrap_or_else(|error| panic!("servers/{kind}.toml: {error}")))
    };
    FILES.into_iter().map(parse).collect()
});

impl BuiltIn {
    /// Returns the server of a kind; `None` for ours, and for commands of the user.
    pub(super) fn of(kind: ServerKind) -> Option<&'static Self> {
        ALL.iter().find(|(other, _)| *other == kind).map(|(_, server)| server)
    }

    /// Returns its command for a server of a scenario: with the scenario's settings, and still without its lines.
    pub(super) fn command(&self, server: &ServerSpec, is_root: bool) -> ServerCommand {
        let as_root = if is_root { self.as_root.as_str() } else { "" };
        let latency = self.latency_optimization.as_ref().map_or("", |words| {
            if server.latency_optimization == Some(true) { &words.on } else { &words.off }
        });
        let mut command = self.command.clone();
        for text in command.files.values_mut() {
            *text = with_lines(text, "{as_root}", Some(as_root).filter(|line| !line.is_empty()));
            *text = text.replace("{latency_optimization}", latency);
        }
        command
    }
}

/// Replaces the line that consists of `mark` by others with its indentation.
pub(super) fn with_lines<'a>(
    text: &str,
    mark: &str,
    lines: impl IntoIterator<Item = &'a str>,
) -> String {
    let Some(line) = text.lines().find(|line| line.trim() == mark) else { return text.to_owned() };
    let indentation = &line[..line.len() - line.trim_start().len()];
    let new: String = lines.into_iter().map(|line| format!("{indentation}{line}\n")).collect();
    text.replacen(&format!("{line}\n"), &new, 1)
}

/// Replaces the address of the backend.
pub(super) fn with_backend(command: &mut ServerCommand, backend: SocketAddr) {
    for text in command.files.values_mut() {
        *text = text.replace("{backend}", &backend.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_server() {
        for (kind, _) in FILES {
            let BuiltIn { command, install, .. } = BuiltIn::of(kind).unwrap();
            assert_eq!(command.argv[0], kind.word(), "{kind}");
            assert_eq!(command.version[0], kind.word(), "{kind}");
            assert!(install.starts_with("apt-get install "), "{kind}");
        }
    }

    #[test]
    fn lines_take_the_place_of_their_mark() {
        let text = "a {\n    {lines}\n}\n";
        assert_eq!(with_lines(text, "{lines}", ["x", "y"]), "a {\n    x\n    y\n}\n");
        assert_eq!(with_lines(text, "{lines}", []), "a {\n}\n");
        assert_eq!(with_lines(text, "{other}", ["x"]), text);
    }
}
