//! Finds the servers installed on this machine, and the commands that install missing ones.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scenario::{ServerKind, ServerSpec};

/// More directories to search: Debian installs servers in directories that only root's `PATH` has.
const MORE_FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"];

const GO_SERVER: &str = include_str!("server.go");

/// Returns the program name of a server other than `smig`.
const fn program_name(kind: ServerKind) -> &'static str {
    kind.word()
}

/// Returns the program of a server, if it is installed. `smig` is the path of this program itself.
#[must_use]
pub fn program_of(server: &ServerSpec, smig: &Path) -> Option<PathBuf> {
    if let Some(program) = &server.program {
        return is_program(program).then(|| program.clone());
    }
    match server.kind {
        ServerKind::Smig => Some(smig.to_owned()),
        kind => in_path(program_name(kind)),
    }
}

/// Returns the path of a program, if it is installed.
#[must_use]
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| is_program(program))
}

/// Returns whether a file can be executed.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the command that installs a server.
#[must_use]
pub const fn install_command(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Smig => "cargo install --path crates/smig-cli",
        ServerKind::Nginx => "apt-get install --no-install-recommends nginx-light",
        ServerKind::H2o => "apt-get install --no-install-recommends h2o",
        ServerKind::Nghttpd => "apt-get install --no-install-recommends nghttp2-server",
        ServerKind::Haproxy => "apt-get install --no-install-recommends haproxy",
        ServerKind::Caddy => "apt-get install --no-install-recommends caddy",
        ServerKind::Go => "apt-get install --no-install-recommends golang-go",
    }
}

/// Returns the version that a server reports, for the record of a run.
#[must_use]
pub fn version_of(kind: ServerKind, program: &Path) -> String {
    let argument = match kind {
        ServerKind::Nginx | ServerKind::Haproxy => "-v",
        ServerKind::Go | ServerKind::Caddy => "version",
        ServerKind::Smig | ServerKind::H2o | ServerKind::Nghttpd => "--version",
    };
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let Ok(output) = output else { return "unknown".into() };
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
