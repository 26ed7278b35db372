//! Describes the machine: enough to judge a result, without anything that identifies its owner.

use std::fs;
use std::thread;

use super::result::Machine;

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn current(jobs: usize) -> Self {
        let name = rustix::system::uname();
        let (system, release) =
            (name.sysname().to_string_lossy(), name.release().to_string_lossy());
        Self {
            kernel: format!("{system} {release}"),
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cpus: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            jobs,
        }
    }
}

fn cpu_model(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}
