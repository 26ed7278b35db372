//! Servers and clients that are commands of the user: `kind = "command"`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::placeholder::{fill, placeholders};

/// The placeholder for the directory of the scenario file.
const DIR: &str = "{dir}";

/// Placeholders of a server's command.
const SERVER: [&str; 9] =
    ["addr", "port", "root", "cert", "key", "cert_and_key", "scratch", "log", "dir"];

/// Placeholders of a client's command.
const CLIENT: [&str; 9] =
    ["url", "origin", "addr", "port", "size", "number", "seed", "cert", "dir"];

/// A server that any program can be.
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

/// A client, or a generator of load, that any program can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCommand {
    /// Program and arguments. It is started once for each request of the transfer's schedule.
    pub argv: Vec<String>,
    /// Environment variables, in addition to those of the lab.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What its results are.
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

/// The key below the command, and the fault there.
type Fault = (String, String);

impl ServerCommand {
    /// Returns all faults.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        program_fault(&self.argv, &mut faults);
        for (key, texts) in [
            ("argv", self.argv.iter().collect::<Vec<_>>()),
            ("environment", self.environment.values().collect()),
            ("files", self.files.values().collect()),
        ] {
            placeholder_fault(key, &texts, &SERVER, &mut faults);
        }
        version_fault(&self.version, &mut faults);
        let told = self.argv.iter().chain(self.environment.values()).chain(self.files.values());
        if !told.flat_map(|text| placeholders(text)).any(|name| name == "port") {
            let what = "{port} is in no argument, environment variable or file: the lab chooses the \
                        port, and the server must be told";
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
    pub(super) fn resolve(&mut self, folder: &Path) {
        resolve(self.argv.iter_mut().chain(&mut self.version), folder);
        resolve(self.environment.values_mut().chain(self.files.values_mut()), folder);
    }
}

impl ClientCommand {
    /// Returns all faults.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        program_fault(&self.argv, &mut faults);
        for (key, texts) in [
            ("argv", self.argv.iter().collect::<Vec<_>>()),
            ("environment", self.environment.values().collect()),
        ] {
            placeholder_fault(key, &texts, &CLIENT, &mut faults);
        }
        version_fault(&self.version, &mut faults);
        let target = ["url", "origin", "addr"];
        let told = self.argv.iter().chain(self.environment.values());
        if !told.flat_map(|text| placeholders(text)).any(|name| target.contains(&name)) {
            let what = "none of {url}, {origin} and {addr} is in an argument or environment \
                        variable: the client must be told its server";
            faults.push(("argv".into(), what.into()));
        }
        faults
    }

    /// Replaces the placeholder for the scenario's directory.
    pub(super) fn resolve(&mut self, folder: &Path) {
        resolve(self.argv.iter_mut().chain(&mut self.version), folder);
        resolve(self.environment.values_mut(), folder);
    }
}

fn program_fault(argv: &[String], faults: &mut Vec<Fault>) {
    let what = match argv.first().map(String::as_str) {
        None | Some("") => "it is empty: name a program, and its arguments".to_owned(),
        Some(program) if program.contains('/') && !program.starts_with(['/', '{']) => format!(
            "{program:?} is relative to no known directory: write \"{DIR}/{program}\" for one \
             beside the scenario, a name in PATH, or a path from /"
        ),
        Some(_) => return,
    };
    faults.push(("argv".into(), what));
}

fn placeholder_fault(key: &str, texts: &[&String], known: &[&str], faults: &mut Vec<Fault>) {
    let names: BTreeSet<&str> = texts.iter().flat_map(|text| placeholders(text)).collect();
    for name in names.into_iter().filter(|name| !known.contains(name)) {
        let known: Vec<_> = known.iter().map(|name| format!("{{{name}}}")).collect();
        let what = format!("{{{name}}} is no placeholder; there are {}", known.join(", "));
        faults.push((key.to_owned(), what));
    }
}

/// A version command runs before there are hosts and files.
fn version_fault(version: &[String], faults: &mut Vec<Fault>) {
    placeholder_fault("version", &version.iter().collect::<Vec<_>>(), &["dir"], faults);
}

fn resolve<'a>(texts: impl Iterator<Item = &'a mut String>, folder: &Path) {
    for text in texts {
        *text = fill(text, &|name| (name == "dir").then(|| folder.display().to_string()));
    }
}

/// Returns the files beside the scenario that a command's arguments name: a change of them is another scenario.
pub(super) fn files_beside(argv: &[String], folder: &Path) -> Vec<PathBuf> {
    let beside = |text: &String| Some(folder.join(text.strip_prefix(DIR)?.trim_start_matches('/')));
    argv.iter().filter_map(beside).filter(|path| path.is_file()).collect()
}
