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

use super::built_in::BuiltInServer;
use crate::scenario::{ServerKind, ServerSpec};

/// More directories to search: Debian installs servers in directories that only root's `PATH` has.
const EXTRA_DIRECTORIES: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"];

/// Time limit of a command that prints a version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of the version, in bytes.
const MAX_VERSION_BYTES: u64 = 1 << 10;

const GO_SERVER_SOURCE: &str = include_str!("server.go");

/// The module of the HTTP/3 peer; its dependencies come from the Go module proxy.
const HTTP3_MODULE: [(&str, &str); 3] = [
    ("main.go", include_str!("http3/main.go")),
    ("go.mod", include_str!("http3/go.mod")),
    ("go.sum", include_str!("http3/go.sum")),
];

/// Returns the program of a server, if it is installed; for servers that the lab builds, the `go` command that builds them.
/// `smig` is the path of this program itself.
#[must_use]
pub fn find_server_tool(server: &ServerSpec, smig: &Path) -> Option<PathBuf> {
    if let Some(program) = &server.program {
        return is_executable_file(program).then(|| program.clone());
    }
    match (server.kind, &server.command) {
        (ServerKind::Smig, _) => Some(smig.to_owned()),
        (ServerKind::Command, Some(command)) => find_command(&command.argv, smig),
        // The lab builds it, and the server of the kind `go`.
        (ServerKind::Http3, _) => find_in_path(ServerKind::Go.as_str()),
        (kind, _) => find_in_path(kind.as_str()),
    }
}

/// Returns the program of a server's or a client's command.
pub(crate) fn find_command(argv: &[String], smig: &Path) -> Option<PathBuf> {
    match argv.first()?.as_str() {
        "{smig}" => Some(smig.to_owned()),
        program => find_program(program),
    }
}

/// Returns the program of a command: a path, or a name in PATH.
fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|program| is_executable_file(program));
    }
    find_in_path(name)
}

/// Returns the path of a program, if it is installed.
#[must_use]
pub fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(EXTRA_DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|program| is_executable_file(program))
}

/// Returns the path of a Chromium or Chrome, if one is installed.
#[must_use]
pub fn find_browser() -> Option<PathBuf> {
    smig_browser::PROGRAM_NAMES.into_iter().find_map(find_in_path)
}

/// Returns whether a file can be executed.
#[must_use]
pub fn is_executable_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the command that installs a server that the lab configures itself.
#[must_use]
pub(crate) fn install_command(kind: ServerKind) -> &'static str {
    // `ServerKind::Command` does not occur: a campaign without its program is rejected.
    BuiltInServer::of(kind)
        .map_or("cargo install --path crates/smig-cli", |server| server.install.as_str())
}

/// Returns the version of a server, for the record of a run: what it reports, or for a server that the lab builds, what
/// the `go` command reports, with quic-go's version for the HTTP/3 peer.
#[must_use]
pub(crate) fn server_version(server: &ServerSpec, program: &Path) -> String {
    let kind = server.kind;
    let mut command = Command::new(program);
    match BuiltInServer::of(kind) {
        Some(server) => command.args(server.command.version.iter().skip(1)),
        None => command.arg("--version"),
    };
    let version = run_for_first_line(command);
    match kind {
        ServerKind::Http3 if server.program.is_none() => {
            format!("{}, {version}", quic_go_version())
        }
        _ => version,
    }
}

/// Returns name and version of the module that implements HTTP/3, from `go.mod`.
fn quic_go_version() -> &'static str {
    let [_, (_, go_mod), _] = HTTP3_MODULE;
    let requirement = go_mod.lines().find_map(|line| line.strip_prefix("require github.com/"));
    requirement.unwrap_or("quic-go of an unknown version")
}

/// Returns the first line that a version command writes; `None` for an empty command.
pub(crate) fn command_version(argv: &[String]) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let Some(program) = find_program(program) else { return Some("unknown".into()) };
    let mut command = Command::new(program);
    command.args(arguments);
    Some(run_for_first_line(command))
}

/// Returns the first line of a command's standard output, or else of its standard error. The command
/// is killed after it, and after [`VERSION_TIMEOUT`].
fn run_for_first_line(mut command: Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let deadline = Instant::now() + VERSION_TIMEOUT;
    let line = || {
        let mut child = Child::spawn_in_current_namespace(command, || ()).ok()?;
        let stdout = read_first_line(child.stdout.take()?);
        let stderr = read_first_line(child.stderr.take()?);
        [stdout, stderr].into_iter().find_map(|line| {
            let remaining = deadline.saturating_duration_since(Instant::now());
            line.recv_timeout(remaining).ok().filter(|line| !line.is_empty())
        })
    };
    line().map_or_else(|| "unknown".into(), |line| String::from_utf8_lossy(&line).trim().to_owned())
}

/// Reads the first line on another thread.
fn read_first_line(source: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, line_receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut line = Vec::new();
        // On an error, the bytes read so far are the line.
        let _ = BufReader::new(source.take(MAX_VERSION_BYTES)).read_until(b'\n', &mut line);
        // Fails if the receiver has timed out.
        let _ = sender.send(line);
    });
    line_receiver
}

/// Builds the Go server, a few lines around Go's standard library.
///
/// # Errors
/// The directory cannot be written, or the compiler failed: its message.
pub(crate) fn build_go_server(go: &Path, dir: &Path) -> io::Result<PathBuf> {
    let source = dir.join("server.go");
    fs::write(&source, GO_SERVER_SOURCE)?;
    build_go_program(go, dir, &source, &dir.join("go-server"))
}

/// Builds the HTTP/3 peer, which is a server and a client, from a module whose dependencies are downloaded if Go does
/// not have them yet.
///
/// # Errors
/// The directory cannot be written, or the compiler failed: its message.
pub(crate) fn build_http3_peer(go: &Path, dir: &Path) -> io::Result<PathBuf> {
    let module = dir.join("http3");
    fs::create_dir_all(&module)?;
    for (name, text) in HTTP3_MODULE {
        fs::write(module.join(name), text)?;
    }
    build_go_program(go, &module, Path::new("."), &dir.join("http3-peer"))
}

fn build_go_program(go: &Path, dir: &Path, source: &Path, program: &Path) -> io::Result<PathBuf> {
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(program).arg(source);
    build.current_dir(dir).stdin(Stdio::null());
    if env::var_os("HOME").is_none() {
        build.env("GOCACHE", dir.join("go-cache"));
        build.env("GOMODCACHE", dir.join("go-modules"));
    }
    let output = build.output()?;
    if output.status.success() {
        return Ok(program.to_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("go build: {}", message.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_http3_peer_names_the_implementation() {
        let version = quic_go_version();
        assert!(version.starts_with("quic-go/quic-go v0."), "{version}");
    }

    #[test]
    fn a_version_is_the_first_line_even_if_the_command_does_not_exit() {
        let version =
            |script: &str| command_version(&["sh", "-c", script].map(str::to_owned)).unwrap();
        assert_eq!(version("echo one; echo two"), "one");
        assert_eq!(version("echo three >&2"), "three");
        assert_eq!(version("exit 1"), "unknown");
        assert_eq!(version("yes version"), "version");
        assert_eq!(version("echo four; sleep 86400"), "four");
        assert_eq!(version("tr '\\0' x </dev/zero").len(), 1 << 10);
    }
}
