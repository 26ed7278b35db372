//! The probes of senders that `smig lab reproduce delay` reports: `smig lab identify`, run as a command.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use smig_lab::reproduce::{PROBES_FILE, SENDERS};

use crate::stderr;

/// Number of probes at a time: a probe takes hardly any processor time.
const PROBE_JOBS: &str = "8";

/// Probes senders by `smig lab identify`, in processes of its own: it enters a user namespace. What exists is kept.
pub(super) fn probe_senders(smig: &Path, out: &Path) -> Result<()> {
    let identify = |words: &[&str]| {
        let mut command = Command::new(smig);
        command.args(["lab", "identify", "--mtu", "500", "--jobs", PROBE_JOBS]).args(words);
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
        let mut command = identify(&["--object", "40kB,80kB,160kB,320kB", "--json"]);
        command.stdout(file);
        run(command)?;
        fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let picture = figures.join(format!("{SENDERS}.svg"));
    if !picture.exists() {
        let mut command = identify(&["cubic-hystart", "cubic", "--object", "160kB", "--svg"]);
        command.arg(&picture).stdout(Stdio::null());
        run(command)?;
    }
    Ok(())
}
