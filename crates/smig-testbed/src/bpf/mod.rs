//! Congestion controls that the kernel lacks, as BPF programs (struct_ops) of this crate's directory `bpf/`: compiled by clang and
//! registered by bpftool while a run needs them.
//!
//! A registered congestion control is the whole machine's. Runs that need the same one share it. A separate process, the keeper,
//! removes it when the last run has ended, however it ended. If the keeper is killed as well, the congestion control stays
//! registered, which changes nothing for anybody who does not ask for it by name, until the next run that needs it has ended.

mod registration;

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use registration::Registration;
pub use registration::is_available;

use crate::keeper::{self, Keeper, KeeperError};
use crate::netns::{TestbedError, check_congestion_control};

/// A congestion control of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BpfControl {
    /// YeAH-TCP (Baiocchi, Castellani, Vacirca, PFLDnet 2007).
    Yeah,
    /// TCP-Illinois (Liu, Başar, Srikant, Performance Evaluation 65, 2008).
    Illinois,
    /// The kernel's CUBIC without HyStart, beside the one with it.
    CubicWithoutHystart,
}

/// Why a congestion control cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// BPF programs need root in the initial user namespace.
    #[error("the congestion control {0} is a BPF program here, and needs root (sudo)")]
    NotRoot(BpfControl),
    /// The kernel does not describe its types, or this process may not load programs.
    #[error(
        "the congestion control {0} is a BPF program here: that needs /sys/kernel/btf/vmlinux, and CAP_BPF and CAP_NET_ADMIN"
    )]
    NotPermitted(BpfControl),
    /// A program is not installed.
    #[error(
        "the congestion control {control} is a BPF program here, and {program} is not installed: apt-get install {package}"
    )]
    Missing {
        /// The congestion control.
        control: BpfControl,
        /// The missing program or header.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// The kernel, bpftool or clang rejected it.
    #[error("the BPF program of the congestion control {control}: {message}")]
    Rejected {
        /// The congestion control.
        control: BpfControl,
        /// What they said.
        message: String,
    },
    /// An I/O error of the lock file or the keeper process.
    #[error("{context}: {cause}")]
    Io {
        /// The file or operation that failed.
        context: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The error message of the keeper process.
    #[error("{0}")]
    Keeper(String),
}

/// A name of no congestion control, neither of this kernel nor of this crate.
#[derive(Debug, thiserror::Error)]
#[error("{kernel}. The lab has also (as root): {}", BpfControl::ALL.map(BpfControl::as_str).join(", "))]
pub struct UnknownControlError {
    /// What the kernel has.
    kernel: TestbedError,
}

/// Checks whether hosts can have a congestion control with this name: one of this kernel, which may load it, or of this crate. Whether this
/// machine can have one of this crate says [`BpfControl::check`].
///
/// # Errors
/// There is none, with those that there are.
pub fn check_control_name(name: &str) -> Result<(), UnknownControlError> {
    if name.parse::<BpfControl>().is_ok() {
        return Ok(());
    }
    check_congestion_control(name).map_err(|kernel| UnknownControlError { kernel })
}

impl BpfControl {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Yeah, Self::Illinois, Self::CubicWithoutHystart];

    /// Returns the name by which sockets ask for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yeah => "yeah",
            Self::Illinois => "illinois",
            Self::CubicWithoutHystart => "cubic_nohs",
        }
    }

    /// Returns the one with this name, unless the kernel has one of its own, which is loaded, or somebody else has registered one.
    #[must_use]
    pub fn needed_for(name: &str) -> Option<Self> {
        let control = Self::ALL.into_iter().find(|control| control.as_str() == name)?;
        // One that is registered may be removed by the run that did so.
        let is_ours = control.is_registered();
        (is_ours || !is_available(name)).then_some(control)
    }

    /// Returns whether a run has registered it.
    #[must_use]
    pub fn is_registered(self) -> bool {
        Registration::is_registered(self)
    }

    /// Checks whether it can be registered here, without doing so: root with its capabilities, the kernel's BTF, clang, bpftool,
    /// libbpf's headers.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self) -> Result<(), BpfError> {
        if !rustix::process::geteuid().is_root() || !is_initial_user_namespace() {
            return Err(BpfError::NotRoot(self));
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() || !may_load_programs() {
            return Err(BpfError::NotPermitted(self));
        }
        registration::check_programs(self)
    }
}

impl std::str::FromStr for BpfControl {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|control| control.as_str() == name);
        found.ok_or_else(|| {
            format!("{name:?} is none of {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

impl std::fmt::Display for BpfControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns whether this process has the capabilities for it; containers often lack them.
fn may_load_programs() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_BPF: u32 = 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    [CAP_NET_ADMIN, CAP_BPF].iter().all(|capability| effective & (1 << capability) != 0)
}

/// Returns whether this process has the machine's user IDs: in a namespace of its own, root is not root.
fn is_initial_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Runs the keeper of a congestion control: registers it, and removes it at end of file on standard input if no other run uses it.
///
/// # Errors
/// [`BpfError`].
pub fn run_keeper(control: BpfControl) -> Result<(), BpfError> {
    control.check()?;
    keeper::hold(|is_abandoned| Registration::acquire(control, is_abandoned))
}

/// A keeper process, which holds a congestion control registered until this is dropped.
#[derive(Debug)]
pub struct BpfGuard {
    keeper: Keeper,
    control: BpfControl,
}

impl BpfGuard {
    /// Starts a keeper and waits until the congestion control is registered. `keeper` is a command that calls [`run_keeper`] for the
    /// name that is its last argument, which is appended here.
    ///
    /// # Errors
    /// [`BpfError::Keeper`] with the keeper's message; [`BpfError::Io`] when it cannot be started.
    pub fn start(mut keeper: Command, control: BpfControl) -> Result<Self, BpfError> {
        keeper.arg(control.as_str());
        let started = Keeper::start(keeper).map(|keeper| Self { keeper, control });
        started.map_err(|error| match error {
            KeeperError::Refused(message) => BpfError::Keeper(message),
            KeeperError::Start(cause) => {
                let context = format!("cannot start the process that registers {control}");
                BpfError::Io { context, cause }
            }
        })
    }

    /// Returns what it holds.
    #[must_use]
    pub const fn control(&self) -> BpfControl {
        self.control
    }

    /// Returns the keeper's process ID.
    #[must_use]
    pub fn keeper_pid(&self) -> u32 {
        self.keeper.id()
    }
}

impl Drop for BpfGuard {
    fn drop(&mut self) {
        if !self.keeper.stop() {
            // The keeper was killed. After a failure here, the next run's end tries again.
            let _ = registration::remove_unused(self.control);
        }
    }
}
