//! The capabilities to create network namespaces.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::error::{LabError, Missing, Step};
use super::sys;

/// Source of the capabilities to create network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The process already had them.
    Root,
    /// A new user namespace. The process keeps its user and group IDs: files that
    /// it writes belong to the user that started it.
    UserNamespace,
}

/// Acquires the capabilities to create network namespaces: enters a new user
/// namespace, unless the process already has them.
///
/// Must be called first in `main`, before an async runtime is built: the kernel
/// rejects it for a process with more than one thread.
///
/// # Errors
/// [`LabError::Missing`] if user namespaces are forbidden, with advice.
pub fn enter_user_namespace() -> Result<Privilege, LabError> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if capabilities(None).is_ok_and(|sets| sets.effective.contains(needed)) {
        return Ok(Privilege::Root);
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER).map_err(|errno| {
        let missing = match errno {
            Errno::INVAL => Missing::CalledTooLate,
            _ => Missing::UserNamespace,
        };
        LabError::missing(missing, errno)
    })?;
    // A group map is only allowed after setgroups() is denied.
    write_own("setgroups", "deny")?;
    write_own("uid_map", &format!("{uid} {uid} 1"))?;
    write_own("gid_map", &format!("{gid} {gid} 1"))?;
    Ok(Privilege::UserNamespace)
}

/// Lets programs that the calling thread starts enter hosts: passes `CAP_SYS_ADMIN` on to them as an
/// ambient capability. Root's programs do not need this; in a user namespace, `execve` drops
/// capabilities that are not ambient.
///
/// # Errors
/// When the process itself does not have that capability.
pub fn raise_ambient_caps() -> io::Result<()> {
    let right = CapabilitySet::SYS_ADMIN;
    let own = capabilities(None)?;
    let sets = CapabilitySets { inheritable: own.inheritable | right, ..own };
    set_capabilities(None, sets)?;
    Ok(configure_capability_in_ambient_set(right, true)?)
}

fn write_own(file: &str, text: &str) -> Result<(), LabError> {
    let path = format!("/proc/self/{file}");
    match fs::write(&path, text) {
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            Err(LabError::missing(Missing::UserNamespace, cause))
        }
        result => result.step(|| format!("cannot write {path}")),
    }
}
