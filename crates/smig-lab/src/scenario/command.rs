//! Servers and clients that are commands of the user: `kind = "command"`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::hosts::HostRole;
use super::placeholder::{fill_placeholders, is_placeholder_name, placeholders};
use super::trials::hex;

/// The placeholder for the directory of the scenario file.
const DIR_PLACEHOLDER: &str = "{dir}";
/// Maximum number of files and directories that are hashed for one command, those in named directories included.
const MAX_FILES: u32 = 10_000;

/// Placeholders of a server's command.
const SERVER_PLACEHOLDERS: [&str; 10] =
    ["addr", "port", "root", "cert", "key", "cert_and_key", "scratch", "log", "smig", "dir"];

/// Placeholders of a client's command.
const CLIENT_PLACEHOLDERS: [&str; 10] =
    ["url", "origin", "addr", "port", "size", "number", "seed", "cert", "smig", "dir"];

/// A server that is an arbitrary program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCommand {
    /// Program and arguments. The program is a path, or a name in PATH.
    pub argv: Vec<String>,
    /// Environment variables, in addition to those of the lab.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Files to write before the start, by name, into the directory `{scratch}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Sign that the server is ready.
    #[serde(default)]
    pub ready: Readiness,
    /// Signal that stops it. After five seconds it is killed.
    #[serde(default)]
    pub stop: StopSignal,
    /// Whether it expects TLS. Clients that are not commands can use no other server.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub tls: bool,
    /// Command whose first line of output is the version in the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<String>,
}

/// A client or load generator that is an arbitrary program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCommand {
    /// Program and arguments. It is started once for each request of the transfer's schedule.
    pub argv: Vec<String>,
    /// Environment variables, in addition to those of the lab.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// How its results are read.
    #[serde(default)]
    pub result: ResultFormat,
    /// Command whose first line of output is the version in the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<String>,
}

/// Sign that a server is ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// It accepts connections on its port.
    #[default]
    Port,
    /// It has written a line that contains this text, on standard output or standard error.
    Line(String),
}

/// A signal that stops a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "each is the signal of its name")]
pub enum StopSignal {
    #[default]
    Term,
    Int,
    Quit,
    Hup,
    Kill,
}

/// How the results of a client's command are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultFormat {
    /// Exit code 0 is one complete object, whose time is the command's.
    #[default]
    Exit,
    /// Each line on standard output is the JSON of one object.
    JsonLines,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_yes(value: &bool) -> bool {
    *value
}

/// The key below the command, and what is wrong there.
type Fault = (String, String);

impl ServerCommand {
    /// Returns all faults. `host` is the server's host; the names of other servers are placeholders too.
    pub(super) fn faults(&self, host: HostRole, others: &[(&str, HostRole)]) -> Vec<Fault> {
        let mut faults = Vec::new();
        check_program(&self.argv, &mut faults);
        for (key, texts) in [
            ("argv", self.argv.iter().collect::<Vec<_>>()),
            ("environment", self.environment.values().collect()),
            ("files", self.files.values().collect()),
        ] {
            check_placeholders(key, &texts, &SERVER_PLACEHOLDERS, others, &mut faults);
            let is_behind =
                |server_host| host == HostRole::Server && server_host == HostRole::Client;
            for (name, _) in others.iter().filter(|(_, server_host)| is_behind(*server_host)) {
                if texts.iter().any(|text| text.contains(&braced(name))) {
                    let what = format!(
                        "{name} runs on the clients' host, where only that host reaches it"
                    );
                    faults.push((key.to_owned(), what));
                }
            }
        }
        check_version(&self.version, &mut faults);
        let texts = self.argv.iter().chain(self.environment.values()).chain(self.files.values());
        if !texts.flat_map(|text| placeholders(text)).any(|name| name == "port") {
            let what = "{port} is in no argument, environment variable or file: the lab chooses the \
                        port and passes it by this placeholder only";
            faults.push(("argv".into(), what.into()));
        }
        for name in self.files.keys() {
            let is_plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
            if !is_plain {
                let what = format!("{name:?} is not a file name: it is written into {{scratch}}");
                faults.push(("files".into(), what));
            }
        }
        if matches!(&self.ready, Readiness::Line(text) if text.trim().is_empty()) {
            faults.push(("ready".into(), "line needs a text that the server writes".into()));
        }
        faults
    }

    /// Replaces the placeholder for the scenario's directory.
    pub(super) fn fill_dir_placeholder(&mut self, dir: &Path) {
        fill_dir_placeholders(self.argv.iter_mut().chain(&mut self.version), dir);
        fill_dir_placeholders(self.environment.values_mut().chain(self.files.values_mut()), dir);
    }
}

impl ClientCommand {
    /// Returns all faults. The names of the servers are placeholders too.
    pub(super) fn faults(&self, servers: &[(&str, HostRole)]) -> Vec<Fault> {
        let mut faults = Vec::new();
        check_program(&self.argv, &mut faults);
        for (key, texts) in [
            ("argv", self.argv.iter().collect::<Vec<_>>()),
            ("environment", self.environment.values().collect()),
        ] {
            check_placeholders(key, &texts, &CLIENT_PLACEHOLDERS, servers, &mut faults);
        }
        check_version(&self.version, &mut faults);
        let address_placeholders = ["url", "origin", "addr"];
        let texts = self.argv.iter().chain(self.environment.values());
        if !texts
            .flat_map(|text| placeholders(text))
            .any(|name| address_placeholders.contains(&name))
        {
            let what = "none of {url}, {origin} and {addr} is in an argument or environment \
                        variable: the client needs its server's address";
            faults.push(("argv".into(), what.into()));
        }
        faults
    }

    /// Replaces the placeholder for the scenario's directory.
    pub(super) fn fill_dir_placeholder(&mut self, dir: &Path) {
        fill_dir_placeholders(self.argv.iter_mut().chain(&mut self.version), dir);
        fill_dir_placeholders(self.environment.values_mut(), dir);
    }
}

fn check_program(argv: &[String], faults: &mut Vec<Fault>) {
    let what = match argv.first().map(String::as_str) {
        None | Some("") => "it is empty: name a program, and its arguments".to_owned(),
        Some(program) if program.contains('/') && !program.starts_with(['/', '{']) => format!(
            "{program:?} is relative to no known directory: write \"{DIR_PLACEHOLDER}/{program}\" for one \
             beside the scenario, a name in PATH, or a path from /"
        ),
        Some(_) => return,
    };
    faults.push(("argv".into(), what));
}

fn braced(name: &str) -> String {
    format!("{{{name}}}")
}

/// Checks that each placeholder has a value, and one only: one of `own`, or the address of a server.
fn check_placeholders(
    key: &str,
    texts: &[&String],
    own: &[&str],
    servers: &[(&str, HostRole)],
    faults: &mut Vec<Fault>,
) {
    for (name, _) in servers {
        let what = if own.contains(name) {
            format!("{} is this placeholder, and a server: rename the server", braced(name))
        } else if !is_placeholder_name(name) {
            format!(
                "{} stays as it is: a server named here needs a name of small letters and _",
                braced(name)
            )
        } else {
            continue;
        };
        if texts.iter().any(|text| text.contains(&braced(name))) {
            faults.push((key.to_owned(), what));
        }
    }
    let names = servers.iter().map(|(name, _)| *name).filter(|name| is_placeholder_name(name));
    let known_names: Vec<_> = own.iter().copied().chain(names).collect();
    let names: BTreeSet<&str> = texts.iter().flat_map(|text| placeholders(text)).collect();
    for name in names.into_iter().filter(|name| !known_names.contains(name)) {
        let known_placeholders: Vec<_> = known_names.iter().map(|name| braced(name)).collect();
        let what = format!(
            "unknown placeholder {}; known: {}",
            braced(name),
            known_placeholders.join(", ")
        );
        faults.push((key.to_owned(), what));
    }
}

/// A version command runs before there are hosts and files.
fn check_version(version_command: &[String], faults: &mut Vec<Fault>) {
    check_placeholders(
        "version",
        &version_command.iter().collect::<Vec<_>>(),
        &["dir"],
        &[],
        faults,
    );
}

fn fill_dir_placeholders<'a>(texts: impl Iterator<Item = &'a mut String>, dir: &Path) {
    for text in texts {
        *text = fill_placeholders(text, &|name| (name == "dir").then(|| dir.display().to_string()));
    }
}

/// Returns the digests of all files below the scenario's directory that a command names: a change there is
/// another scenario. A file whose path is a whole argument counts by its bytes, others also by name.
///
/// # Errors
/// What cannot be hashed.
pub(super) fn named_file_digests<'a>(
    argv: &'a [String],
    other_texts: impl Iterator<Item = &'a String>,
    dir: &Path,
) -> Result<String, String> {
    let mut digests = String::new();
    let mut files_left = MAX_FILES;
    let whole_path = |text: &str| {
        let path = dir.join(text.strip_prefix(DIR_PLACEHOLDER)?.trim_start_matches('/'));
        path.is_file().then_some(path)
    };
    for path in argv.iter().filter_map(|text| whole_path(text)) {
        digests += &digest_of(&path)?;
    }
    for text in argv.iter().chain(other_texts) {
        for (offset, _) in text.match_indices(DIR_PLACEHOLDER) {
            let Some(path) = named_path(&text[offset + DIR_PLACEHOLDER.len()..], dir) else {
                continue;
            };
            if offset == 0 && whole_path(text).is_some() && argv.contains(text) {
                continue;
            }
            add_digests(&dir.join(path), path, &mut files_left, &mut digests)?;
        }
    }
    Ok(digests)
}

/// Returns the longest existing path below `dir` at the beginning of a text, ending where a word of a
/// command line can end. The directory itself, which has the results, is excluded.
fn named_path<'a>(text: &'a str, dir: &Path) -> Option<&'a str> {
    let text = text.strip_prefix('/')?.lines().next()?;
    let is_end = |c: char| c.is_whitespace() || "\"'`;:,&|<>()[]{}=".contains(c);
    let ends = text.match_indices(is_end).map(|(end, _)| end).chain([text.len()]);
    let paths = ends.map(|end| text[..end].trim_end_matches('/')).filter(|path| !path.is_empty());
    paths.rev().find(|path| dir.join(path).exists())
}

/// Adds the digests of names and bytes of a file, or of everything in a directory.
fn add_digests(
    path: &Path,
    name: &str,
    files_left: &mut u32,
    digests: &mut String,
) -> Result<(), String> {
    let fail = |error: io::Error| format!("{}: {error}", path.display());
    *files_left = files_left.checked_sub(1).ok_or_else(|| {
        format!(
            "{DIR_PLACEHOLDER}/{name}: the commands name more than {MAX_FILES} files, all of which are hashed"
        )
    })?;
    *digests += &hex(&Sha256::digest(name));
    if path.is_file() {
        *digests += &digest_of(path)?;
    } else if path.is_dir() && !path.is_symlink() {
        let entries = fs::read_dir(path).map_err(fail)?;
        let mut names: Vec<_> =
            entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>().map_err(fail)?;
        names.sort();
        for entry in names {
            let name = format!("{name}/{}", entry.to_string_lossy());
            add_digests(&path.join(entry), &name, files_left, digests)?;
        }
    }
    Ok(())
}

/// Returns the digest of a file's bytes.
fn digest_of(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(hex(&Sha256::digest(bytes)))
}
