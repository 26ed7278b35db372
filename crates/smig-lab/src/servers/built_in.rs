//! Servers that the lab configures itself: commands like those of a scenario, from the files in `servers/`.

use std::net::SocketAddr;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::scenario::{ServerCommand, ServerKind, ServerSpec};

/// Configuration of a server other than `smig`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BuiltInServer {
    /// The command that installs it.
    pub(super) install: String,
    /// A line of its configuration, for runs as root.
    #[serde(default)]
    as_root: String,
    /// Its notation for the scenario's `latency_optimization`.
    latency_optimization: Option<Switch>,
    /// Whether it needs a backend.
    #[serde(default)]
    pub(super) backend: bool,
    /// What it serves.
    #[serde(default)]
    content: Option<ServerContent>,
    /// Command, as in a scenario.
    pub(super) command: ServerCommand,
}

/// The lines of a configuration that say what is served.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerContent {
    /// Files.
    files: String,
    /// What a backend answers.
    backend: String,
}

/// Notation of a setting that is on or off.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    on: String,
    off: String,
}

pub(super) const BUILT_IN_SERVER_FILES: [(ServerKind, &str); 7] = [
    (ServerKind::Nginx, include_str!("../../servers/nginx.toml")),
    (ServerKind::H2o, include_str!("../../servers/h2o.toml")),
    (ServerKind::Nghttpd, include_str!("../../servers/nghttpd.toml")),
    (ServerKind::Haproxy, include_str!("../../servers/haproxy.toml")),
    (ServerKind::Caddy, include_str!("../../servers/caddy.toml")),
    (ServerKind::Go, include_str!("../../servers/go.toml")),
    (ServerKind::Http3, include_str!("../../servers/http3.toml")),
];

/// The files are part of the program, and a test parses them: errors cannot reach users.
static BUILT_IN_SERVERS: LazyLock<Vec<(ServerKind, BuiltInServer)>> = LazyLock::new(|| {
    let parse = |(kind, text)| {
        let server = toml::from_str(text);
        (kind, server.unwrap_or_else(|error| panic!("servers/{kind}.toml: {error}")))
    };
    BUILT_IN_SERVER_FILES.into_iter().map(parse).collect()
});

impl BuiltInServer {
    /// Returns the server of a kind; `None` for `smig` and for commands.
    pub(super) fn of(kind: ServerKind) -> Option<&'static Self> {
        BUILT_IN_SERVERS.iter().find(|(other, _)| *other == kind).map(|(_, server)| server)
    }

    /// Returns the lines that say what it serves, and whether that needs a backend.
    pub(super) fn content(&self, is_replay: bool) -> (&str, bool) {
        match &self.content {
            Some(content) if is_replay => (&content.backend, true),
            Some(content) => (&content.files, self.backend),
            None => ("", self.backend),
        }
    }

    /// Returns its command with the settings of a scenario's server, but without the scenario's lines.
    pub(super) fn command_for(&self, server: &ServerSpec, is_root: bool) -> ServerCommand {
        let root_config_line = if is_root { self.as_root.as_str() } else { "" };
        let latency = self.latency_optimization.as_ref().map_or("", |words| {
            if server.latency_optimization == Some(true) { &words.on } else { &words.off }
        });
        let mut command = self.command.clone();
        for text in command.files.values_mut() {
            *text = replace_placeholder_line(
                text,
                "{as_root}",
                Some(root_config_line).filter(|line| !line.is_empty()),
            );
            *text = text.replace("{latency_optimization}", latency);
            *text =
                text.replace("{http2}", if server.http2 == Some(false) { "" } else { " http2" });
        }
        command
    }
}

/// Replaces the line that consists of `placeholder` by others with its indentation.
pub(super) fn replace_placeholder_line<'a>(
    text: &str,
    placeholder: &str,
    lines: impl IntoIterator<Item = &'a str>,
) -> String {
    let Some(line) = text.lines().find(|line| line.trim() == placeholder) else {
        return text.to_owned();
    };
    let indentation = &line[..line.len() - line.trim_start().len()];
    let replacement: String =
        lines.into_iter().map(|line| format!("{indentation}{line}\n")).collect();
    text.replacen(&format!("{line}\n"), &replacement, 1)
}

/// Replaces the address of the backend.
pub(super) fn set_backend(command: &mut ServerCommand, backend: SocketAddr) {
    for text in command.files.values_mut() {
        *text = text.replace("{backend}", &backend.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_file_parses() {
        for (kind, _) in BUILT_IN_SERVER_FILES {
            let BuiltInServer { command, install, .. } = BuiltInServer::of(kind).unwrap();
            assert_eq!(command.argv[0], kind.as_str(), "{kind}");
            assert_eq!(command.version[0], kind.as_str(), "{kind}");
            assert!(install.starts_with("apt-get install "), "{kind}");
        }
    }

    #[test]
    fn those_that_replay_have_a_backend_for_it() {
        for (kind, _) in BUILT_IN_SERVER_FILES {
            let (content, has_backend) = BuiltInServer::of(kind).unwrap().content(true);
            assert_eq!(has_backend, kind.replays(), "{kind}: {content}");
        }
    }

    #[test]
    fn lines_replace_their_placeholder() {
        let text = "a {\n    {lines}\n}\n";
        assert_eq!(replace_placeholder_line(text, "{lines}", ["x", "y"]), "a {\n    x\n    y\n}\n");
        assert_eq!(replace_placeholder_line(text, "{lines}", []), "a {\n}\n");
        assert_eq!(replace_placeholder_line(text, "{other}", ["x"]), text);
    }
}
