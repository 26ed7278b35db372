//! Directories, servers and commands for the tests.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A directory to serve, one to write to, and one for the program's data.
pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(sandbox.path("www")).unwrap();
        std::fs::create_dir(sandbox.path("out")).unwrap();
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn path_text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file to be served, with [`content`]; returns its hash.
    pub(crate) fn write_file(&self, name: &str, length: usize) -> String {
        let content = content(length);
        std::fs::write(self.path("www").join(name), &content).unwrap();
        sha256(&content)
    }

    /// Returns a command that runs the program in these directories.
    pub(crate) fn smig(&self, args: &[&str]) -> Command {
        // A slow machine must not fail a test.
        let timeouts: &[&str] = match args {
            ["get", rest @ ..] if !rest.is_empty() => &["--connect-timeout", "3600"],
            ["probe", ..] => &["--timeout", "1h"],
            _ => &[],
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_smig"));
        command
            .args(args)
            .args(timeouts)
            .current_dir(self.path("out"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("NO_COLOR", "1")
            .env_remove("SMIG_LOG")
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to completion.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.smig(args).output().unwrap()
    }

    /// Runs `smig get` for several URLs of one server.
    pub(crate) fn get(&self, server: &ServerProcess, args: &[&str], paths: &[&str]) -> Output {
        let urls: Vec<_> = paths.iter().map(|path| server.url(path)).collect();
        let mut all_args = vec!["get"];
        all_args.extend(args);
        all_args.extend(urls.iter().map(String::as_str));
        self.run(&all_args)
    }

    /// Starts `smig serve` for the directory to serve.
    pub(crate) fn serve(&self, args: &[&str]) -> ServerProcess {
        let www = self.path_text("www");
        let mut all_args = vec!["serve", &www, "--listen", "127.0.0.1:0"];
        all_args.extend(["--handshake-timeout", "1h", "--limit-preface-timeout", "1h"]);
        all_args.extend(args);
        self.start(&all_args)
    }

    /// Starts a server, and waits until it listens.
    pub(crate) fn start(&self, args: &[&str]) -> ServerProcess {
        self.start_with(args, |_| {})
    }

    /// Starts a server like [`Self::start`], after `change` to its command.
    pub(crate) fn start_with(
        &self,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> ServerProcess {
        let mut command = self.smig(args);
        change(&mut command);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = find_line(&mut stderr, "listening on ");
        let origin = line.rsplit_once(' ').unwrap().1.to_owned();
        ServerProcess { child, stderr, origin }
    }
}

/// Reads lines until one contains `text`, and returns it.
pub(crate) fn find_line(lines: &mut Lines<BufReader<ChildStderr>>, text: &str) -> String {
    let mut skipped_lines = Vec::new();
    for line in lines {
        let line = line.unwrap();
        if line.contains(text) {
            return line;
        }
        skipped_lines.push(line);
    }
    panic!("no {text:?} in {skipped_lines:#?}");
}

/// A running server: `smig serve`, `smig gateway` or `smig agent`; killed when dropped.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) stderr: Lines<BufReader<ChildStderr>>,
    pub(crate) origin: String,
}

impl ServerProcess {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.origin)
    }

    pub(crate) fn address(&self) -> &str {
        self.origin.split_once("://").unwrap().1
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that is killed when this is dropped.
pub(crate) struct KillGuard(pub(crate) Child);

impl KillGuard {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns bytes in which no aligned block of eight occurs twice, so that misplaced data is detected.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0_u64..).flat_map(|n| (n * 0x9e37_79b9).to_be_bytes()).take(length).collect()
}

pub(crate) fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn sha256_of(path: &Path) -> String {
    sha256(&std::fs::read(path).unwrap())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
}
