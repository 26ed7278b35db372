//! Finds the servers installed on this machine, and the commands that install missing ones.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use smig_testbed::netns::Child;

use super::built_in::BuiltIn;
use crate::scenario::{ServerKind, ServerSpec};

/// More directories to search: Debian installs servers in directories that only root's `PATH` has.
const EXTRA_DIRECTORIES: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"];

/// Time limit of a command that prints a version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of the version, in bytes.
const MAX_VERSION: u64 = 1 << 10;

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
    first_line(command)
}

/// Returns the first line that a version command writes; `None` for an empty command.
pub(crate) fn version_by(argv: &[String]) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let Some(program) = program_named(program) else { return Some("unknown".into()) };
    let mut command = Command::new(program);
    command.args(arguments);
    Some(first_line(command))
}

/// Returns the first line that a command writes on standard output, otherwise on standard error. The command
/// is killed after it, and after [`VERSION_TIMEOUT`].
fn first_line(mut command: Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let deadline = Instant::now() + VERSION_TIMEOUT;
    let line = || {
        let mut child = Child::spawn_here(command, || ()).ok()?;
        let stdout = line_of(child.stdout.take()?);
        let stderr = line_of(child.stderr.take()?);
        [stdout, stderr].into_iter().find_map(|line| {
            let left = deadline.saturating_duration_since(Instant::now());
            line.recv_timeout(left).ok().filter(|line| !line.is_empty())
        })
    };
    line().map_or_else(|| "unknown".into(), |line| String::from_utf8_lossy(&line).trim().to_owned())
}

/// Reads the first line on another thread.
fn line_of(source: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (tell, line) = mpsc::channel();
    thread::spawn(move || {
        let mut line = Vec::new();
        // On an error, what was read before it is the line.
        let _ = BufReader::new(source.take(MAX_VERSION)).read_until(b'\n', &mut line);
        // Fails after the time limit.
        let _ = tell.send(line);
    });
    line
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_line_of_a_command_that_need_not_end() {
        let version = |words: &str| version_by(&["sh", "-c", words].map(str::to_owned)).unwrap();
        assert_eq!(version("echo one; echo two"), "one");
        assert_eq!(version("echo three >&2"), "three");
        assert_eq!(version("exit 1"), "unknown");
        assert_eq!(version("yes version"), "version");
        assert_eq!(version("echo four; sleep 86400"), "four");
        assert_eq!(version("tr '\\0' x </dev/zero").len(), 1 << 10);
    }
}
