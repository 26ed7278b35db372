//! Errors of the testbed's setup, with advice.

use std::io;

use smig_link::SpecError;

/// A requirement that the machine lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRequirement {
    /// Neither root's capabilities nor user namespaces are available.
    UserNamespace,
    /// A user namespace was requested after the process had started threads.
    CalledTooLate,
    /// A network namespace could not be created.
    NetworkNamespace,
    /// The TUN driver or its device file is missing.
    Tun,
    /// The process may not open the TUN device file.
    TunAccess,
}

impl MissingRequirement {
    /// Returns advice for the operator, in complete sentences.
    const fn advice(self) -> &'static str {
        match self {
            Self::UserNamespace => {
                "Run it as root (sudo), or allow user namespaces: \
                 sysctl -w user.max_user_namespaces=10000, and on Debian \
                 kernel.unprivileged_userns_clone=1, and on Ubuntu \
                 kernel.apparmor_restrict_unprivileged_userns=0. In a container, \
                 run it with --privileged or --cap-add NET_ADMIN --cap-add SYS_ADMIN."
            }
            Self::CalledTooLate => {
                "This is a bug in the program: enter_user_namespace() must come first in main(). \
                 As root (sudo) it works regardless."
            }
            Self::NetworkNamespace => {
                "Run it as root (sudo). If this is a user namespace on Ubuntu, AppArmor may \
                 restrict it: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0. In a \
                 container, add --cap-add NET_ADMIN --cap-add SYS_ADMIN."
            }
            Self::Tun => {
                "Load the driver with `modprobe tun`. In a container, add --device /dev/net/tun."
            }
            Self::TunAccess => {
                "Run it as root (sudo), or give all users access, as most systems do: \
                 chmod 0666 /dev/net/tun."
            }
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::UserNamespace => "not root, and user namespaces are not permitted",
            Self::CalledTooLate => "a user namespace cannot be created after a thread has started",
            Self::NetworkNamespace => "network namespaces cannot be created",
            Self::Tun => "TUN devices are missing: no /dev/net/tun",
            Self::TunAccess => "no permission to open /dev/net/tun",
        }
    }
}

/// An error of the testbed. The message includes the kernel's error, which is
/// therefore not a separate source.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The machine lacks a requirement that the operator can provide.
    #[error("{} ({cause}). {}", requirement.description(), requirement.advice())]
    Missing {
        /// The requirement.
        requirement: MissingRequirement,
        /// The kernel's error.
        cause: io::Error,
    },
    /// This kernel does not have the congestion control.
    #[error(
        "this kernel has no congestion control named {name:?}; it has: {available}. \
         Try `modprobe tcp_{name}`"
    )]
    CongestionControl {
        /// The requested name.
        name: String,
        /// The available names, separated by spaces.
        available: String,
    },
    /// The link cannot be created.
    #[error("invalid link: {0}")]
    Link(SpecError),
    /// A step of setting up a host failed.
    #[error("{context}: {cause}")]
    Setup {
        /// What failed, as text.
        context: String,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl TestbedError {
    /// Returns whether the machine lacks a requirement, so that a test may be skipped. A call that came too late is a bug
    /// instead.
    #[must_use]
    pub const fn is_missing_requirement(&self) -> bool {
        match self {
            Self::Missing { requirement, .. } => {
                !matches!(requirement, MissingRequirement::CalledTooLate)
            }
            Self::CongestionControl { .. } | Self::Link(_) | Self::Setup { .. } => false,
        }
    }

    pub(super) fn missing(requirement: MissingRequirement, cause: impl Into<io::Error>) -> Self {
        Self::Missing { requirement, cause: cause.into() }
    }
}

/// Adds to an I/O error what failed.
pub(super) trait SetupContext<T> {
    fn context(self, step: impl FnOnce() -> String) -> Result<T, TestbedError>;
}

impl<T, E: Into<io::Error>> SetupContext<T> for Result<T, E> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T, TestbedError> {
        self.map_err(|cause| TestbedError::Setup { context: context(), cause: cause.into() })
    }
}
