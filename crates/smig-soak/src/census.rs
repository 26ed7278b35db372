//! Counts of live objects: handlers, bodies and sessions by guards; tasks, sockets and memory by queries.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A guard that counts itself while it exists; a clone counts separately.
#[derive(Debug)]
pub(crate) struct LiveGuard(Arc<AtomicU64>);

impl LiveGuard {
    pub(crate) fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Clone for LiveGuard {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts of this process's resources, and of live objects of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Census {
    /// Tasks of the client's runtime: its sessions, its dials, the relays.
    pub(crate) tasks: usize,
    /// File descriptors of the process: the sockets of server, client and relay.
    pub(crate) descriptors: usize,
    /// Open connections of the shared server.
    pub(crate) connections: u64,
    /// Copies of the service: one per worker and one per session.
    pub(crate) services: u64,
    /// Running handlers, and the bodies of both ends.
    pub(crate) handlers: u64,
}

impl Census {
    /// Describes the counts that are larger than in `baseline`; `None` if there are none.
    pub(crate) fn excess(&self, baseline: &Self) -> Option<String> {
        let rows = [
            ("tasks", self.tasks as u64, baseline.tasks as u64),
            ("file descriptors", self.descriptors as u64, baseline.descriptors as u64),
            ("server connections", self.connections, baseline.connections),
            ("copies of the service", self.services, baseline.services),
            ("handlers and bodies", self.handlers, baseline.handlers),
        ];
        let grown = rows.into_iter().filter(|(_, now, then)| now > then);
        let parts: Vec<_> =
            grown.map(|(what, now, then)| format!("{now} {what}, were {then}")).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Returns the number of open file descriptors of this process.
pub(crate) fn descriptor_count() -> usize {
    // The descriptor that reads the directory is always included.
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Returns the resident memory of this process in KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns processor and kernel, for the report.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} x {model}, Linux {}", kernel.trim())
}
