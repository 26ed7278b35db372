//! What can keep the lab from its two hosts, and what to do about it.

use std::io;

use crate::link::SpecError;

/// What the machine lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Neither the rights of root nor a user namespace to have them in.
    UserNamespace,
    /// A user namespace was made after the process had started threads.
    CalledTooLate,
    /// A network namespace could not be made.
    NetworkNamespace,
    /// There is no TUN driver, or its device file is not there.
    Tun,
    /// The TUN device file is there, but may not be opened.
    TunAccess,
}

impl Missing {
    /// What the reader can do; whole sentences.
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
                "This is a mistake in the program: enter_user_namespace() comes first in main(). \
                 As root (sudo) it works all the same."
            }
            Self::NetworkNamespace => {
                "Run it as root (sudo). If this is a user namespace on Ubuntu, its rights may be \
                 taken away again: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0. In a \
                 container, add --cap-add NET_ADMIN --cap-add SYS_ADMIN."
            }
            Self::Tun => {
                "Load the driver with `modprobe tun`. In a container, add --device /dev/net/tun."
            }
            Self::TunAccess => {
                "Run it as root (sudo), or open the device to everyone, as most systems do: \
                 chmod 0666 /dev/net/tun."
            }
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::UserNamespace => "not root, and user namespaces are forbidden here",
            Self::CalledTooLate => "a user namespace cannot be made once threads run",
            Self::NetworkNamespace => "network namespaces cannot be made here",
            Self::Tun => "TUN devices are missing: no /dev/net/tun",
            Self::TunAccess => "/dev/net/tun may not be opened",
        }
    }
}

/// Why the lab could not do what it was asked. The text is complete: the
/// kernel's answer is in it and is not a source beside it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The machine lacks something that can be provided.
    #[error("{} ({cause}). {}", missing.what(), missing.advice())]
    Missing {
        /// What.
        missing: Missing,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A congestion control that this kernel does not have.
    #[error(
        "this kernel has no congestion control named {name:?}; it has: {available}. \
         Try `modprobe tcp_{name}`"
    )]
    CongestionControl {
        /// The name asked for.
        name: String,
        /// The names there are, with spaces between.
        available: String,
    },
    /// The link that was asked for cannot be made.
    #[error("the link: {0}")]
    Link(SpecError),
    /// A step of setting up a host failed.
    #[error("{step}: {cause}")]
    Setup {
        /// What was being done.
        step: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

impl LabError {
    /// Whether the machine lacks something, so that a test may be skipped.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    pub(super) fn missing(missing: Missing, cause: impl Into<io::Error>) -> Self {
        Self::Missing { missing, cause: cause.into() }
    }
}

/// Names the step that an I/O error comes from.
pub(super) trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|cause| LabError::Setup { step: step(), cause: cause.into() })
    }
}
