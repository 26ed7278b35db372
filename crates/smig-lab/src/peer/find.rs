//! Finds the servers installed on this machine, and the commands that install missing ones.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::built_in::BuiltIn;
use crate::scenario::{ServerKind, ServerSpec};

/// More directories to search: Debian installs servers in directories that only root's `PATH` has.
const EXTRA_DIRECTORIES: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"];

const GO_SERVER: &str = include_str!("server.go");

/// Returns the program of a server, if it is installed. `smig` is the path of this program itself.
#[must_use]
pub fn program_of(server: &ServerSpec, smig: &Path) -> Option<PathBuf> {
    if let Some(program) = &server.program {
        return is_program(program).then(|| program.clone());
    }
    match (server.kind, &server.command) {
        (ServerKind::Smig, _) => Some(smig.to_owned()),
        (ServerKind::Command, Some(command)) => program_named(command.argv.first()?),
        (kind, _) => in_path(kind.word()),
    }
}

/// Returns the program of a command: a path, or a name in PATH.
pub(crate) fn program_named(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|program| is_program(program));
    }
    in_path(name)
}

/// Returns the path of a program, if it is installed.
#[must_use]
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(EXTRA_DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|program| is_program(program))
}

/// Returns whether a file can be executed.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the command that installs a server that the lab configures itself.
#[must_use]
pub fn install_command(kind: ServerKind) -> &'static str {
    // The program of a command is unknown; a campaign without it is refused.
    BuiltIn::of(kind)
        .map_or("cargo install --path crates/smig-cli", |server| server.install.as_str())
}

/// Returns the version that a server reports, for the record of a run.
#[must_use]
pub fn version_of(kind: ServerKind, program: &Path) -> String {
    let mut command = Command::new(program);
    match BuiltIn::of(kind) {
        Some(server) => command.args(server.command.version.iter().skip(1)),
        None => command.arg("--version"),
    };
    first_line(&mut command)
}

/// Returns the first line that a version command writes; `None` for an empty command.
pub(crate) fn version_by(argv: &[String]) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let Some(program) = program_named(program) else { return Some("unknown".into()) };
    Some(first_line(Command::new(program).args(arguments)))
}

fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.stdin(Stdio::null()).output() else { return "unknown".into() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().map_or_else(|| "unknown".into(), |line| line.trim().to_owned())
}

/// Builds the Go server, a few lines around Go's standard library.
///
/// # Errors
/// When the directory cannot be written, or with the compiler's message.
pub fn build_go_server(go: &Path, folder: &Path) -> io::Result<PathBuf> {
    let source = folder.join("server.go");
    fs::write(&source, GO_SERVER)?;
    let program = folder.join("go-server");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(&source);
    build.current_dir(folder).stdin(Stdio::null());
    if env::var_os("HOME").is_none() {
        build.env("GOCACHE", folder.join("go-cache"));
    }
    let output = build.output()?;
    if output.status.success() {
        return Ok(program);
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("go build: {}", words.trim())))
}
