//! What is alive: handlers, bodies and sessions by guards, tasks, sockets and memory by asking.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counts itself as long as it lives; a clone counts as another.
#[derive(Debug)]
pub(crate) struct Alive(Arc<AtomicU64>);

impl Alive {
    pub(crate) fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Clone for Alive {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What this process holds, and what the server's application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Census {
    /// Tasks of the client's runtime: its sessions, its dials, the relays.
    pub(crate) tasks: usize,
    /// File descriptors of the process: the sockets of server, client and relay.
    pub(crate) descriptors: usize,
    /// Connections that the lasting server has open.
    pub(crate) connections: u64,
    /// Copies of the service: one a worker, one a session.
    pub(crate) services: u64,
    /// Handlers and bodies that run.
    pub(crate) handlers: u64,
}

impl Census {
    /// What is more now than it was at `before`.
    pub(crate) fn excess(&self, before: &Self) -> Option<String> {
        let rows = [
            ("tasks", self.tasks as u64, before.tasks as u64),
            ("file descriptors", self.descriptors as u64, before.descriptors as u64),
            ("server connections", self.connections, before.connections),
            ("server sessions", self.services, before.services),
            ("handlers", self.handlers, before.handlers),
        ];
        let more = rows.into_iter().filter(|(_, now, then)| now > then);
        let said: Vec<_> =
            more.map(|(what, now, then)| format!("{now} {what}, were {then}")).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// How many file descriptors this process has open.
pub(crate) fn descriptors() -> usize {
    // The one that reads the folder is in it each time.
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The resident memory of this process, KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Processor and kernel, for the report.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} x {model}, Linux {}", kernel.trim())
}
