//! Scenarios, directories and commands for the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use smig_lab::campaign::{TrialResult, read_results};
use tempfile::TempDir;

/// A scenario with a link so fast that a run takes a moment, one small object, two variants.
pub(crate) const SHORT_SCENARIO: &str = "\
repetitions = 3
[link.both]
rate = \"100 Mbit/s\"
delay_ms = 1
queue = { packets = 200 }
[servers.main]
kind = \"smig\"
[clients.user]
kind = \"smig\"
[workload]
settle = \"0\"
time_limit = \"1h\"
[workload.transfers.one]
size = \"10kB\"
[accept]
lateness_p99 = \"1h\"
[variants.scheme.plain]
servers.main.settings.smig.enabled = false
[variants.scheme.smig]
";

pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(sandbox.path("tmp")).unwrap();
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a scenario and returns its path.
    pub(crate) fn write_scenario(&self, text: &str) -> String {
        let path = self.path("test.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Returns a `smig lab` command in this directory, with its own TMPDIR for files that must be removed.
    pub(crate) fn lab(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_smig"));
        command
            .arg("lab")
            .args(args)
            .current_dir(self.0.path())
            .env("TMPDIR", self.path("tmp"))
            .env("NO_COLOR", "1")
            .env_remove("SMIG_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the command to completion.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.lab(args).output().unwrap()
    }

    pub(crate) fn results(&self, dir: &str) -> Vec<TrialResult> {
        read_results(&self.path(dir)).unwrap()
    }

    /// Returns whether no temporary files of the runs are left.
    pub(crate) fn is_clean(&self) -> bool {
        is_empty(&self.path("tmp"))
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// Returns whether hosts and links can be created here; prints the reason if not.
pub(crate) fn can_run() -> bool {
    let output = Sandbox::new().run(&["trial", "--check"]);
    if !output.status.success() {
        eprintln!("skipped: {}", text(&output.stderr));
    }
    output.status.success()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn assert_exit(output: &Output, code: i32) {
    let output_text = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{output_text}");
}
