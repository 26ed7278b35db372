//! Probes of senders by `smig lab identify`, run as a command: those that `smig lab reproduce delay` reports, and those of a page's hosts.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use smig_lab::identify::{Family, Sender};
use smig_lab::reproduce::{PROBES_FILE, SENDERS};

use crate::stderr;

/// Number of probes at a time: a probe takes hardly any processor time.
const PROBE_JOBS: &str = "8";

/// Returns the command of a probe, which has a process of its own: it enters a user namespace, for which a process must be single-threaded.
fn identify(smig: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(smig);
    command.args(["lab", "identify"]).args(words).stdin(Stdio::null());
    command
}

/// Tells what a sender goes by, by Igor's rule, from an object of this size.
///
/// # Errors
/// It cannot be probed; the probe has said why on standard error.
pub(super) fn family_of(smig: &Path, sender: &Sender, object_bytes: u64) -> Result<Family> {
    #[derive(Deserialize)]
    struct Probe {
        paper_rule: Family,
    }
    let (sender, object) = (sender.to_string(), object_bytes.to_string());
    let mut command = identify(smig, &[&sender, "--json", "--object", &object]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.context("cannot run smig lab identify")?;
    let status = output.status;
    anyhow::ensure!(
        status.success(),
        "the sender {sender} cannot be probed (smig lab identify {sender}: {status})"
    );
    let probe: Probe =
        serde_json::from_slice(&output.stdout).context("smig lab identify has printed no probe")?;
    Ok(probe.paper_rule)
}

/// Probes senders. What exists is kept.
pub(super) fn probe_senders(smig: &Path, out: &Path) -> Result<()> {
    let probe = |words: &[&str]| {
        let mut command = identify(smig, &["--mtu", "500", "--jobs", PROBE_JOBS]);
        command.args(words);
        command
    };
    let run = |mut command: Command| -> Result<()> {
        let status = command.status().context("cannot run smig lab identify")?;
        anyhow::ensure!(status.success(), "smig lab identify: {status}");
        Ok(())
    };
    let figures = out.join("figures");
    fs::create_dir_all(&figures).with_context(|| format!("cannot make {}", figures.display()))?;
    let path = out.join(PROBES_FILE);
    if !path.exists() {
        stderr::print_line("probing senders");
        // An interrupted command leaves no file that looks complete.
        let part = path.with_extension("jsonl.part");
        let file =
            fs::File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
        let mut command = probe(&["--object", "40kB,80kB,160kB,320kB", "--json"]);
        command.stdout(file);
        run(command)?;
        fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let picture = figures.join(format!("{SENDERS}.svg"));
    if !picture.exists() {
        let mut command = probe(&["cubic-hystart", "cubic", "--object", "160kB", "--svg"]);
        command.arg(&picture).stdout(Stdio::null());
        run(command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CliError;

    #[test]
    fn a_probe_that_fails_is_no_usage_error() {
        let sender = "reno".parse().unwrap();
        let error = family_of(Path::new("/bin/false"), &sender, 50_000).unwrap_err();
        // So its exit code is 1.
        assert!(error.downcast_ref::<CliError>().is_none());
        assert!(error.to_string().contains("reno cannot be probed"), "{error}");
    }
}
