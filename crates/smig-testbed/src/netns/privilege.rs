//! The capabilities to create network namespaces.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::error::{MissingRequirement, SetupContext, TestbedError};
use super::sys;

/// Source of the capabilities to create network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The process already had them.
    AlreadyHeld,
    /// A new user namespace. The process retains its user and group IDs: files that
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
/// [`TestbedError::Missing`] if user namespaces are forbidden, with advice.
pub fn enter_user_namespace() -> Result<Privilege, TestbedError> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if capabilities(None).is_ok_and(|sets| sets.effective.contains(needed)) {
        return Ok(Privilege::AlreadyHeld);
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER).map_err(|errno| {
        let missing = match errno {
            Errno::INVAL => MissingRequirement::CalledTooLate,
            _ => MissingRequirement::UserNamespace,
        };
        TestbedError::missing(missing, errno)
    })?;
    // A group map is only allowed after setgroups() is denied.
    write_proc_self("setgroups", "deny")?;
    write_proc_self("uid_map", &format!("{uid} {uid} 1"))?;
    write_proc_self("gid_map", &format!("{gid} {gid} 1"))?;
    Ok(Privilege::UserNamespace)
}

/// Allows programs started by the calling thread to enter hosts: they inherit `CAP_SYS_ADMIN` as an
/// ambient capability. Root's programs do not need this; in a user namespace, `execve` drops
/// capabilities that are not ambient.
///
/// # Errors
/// When the process itself does not have that capability.
pub fn raise_ambient_caps() -> io::Result<()> {
    let capability = CapabilitySet::SYS_ADMIN;
    let current = capabilities(None)?;
    let sets = CapabilitySets { inheritable: current.inheritable | capability, ..current };
    set_capabilities(None, sets)?;
    Ok(configure_capability_in_ambient_set(capability, true)?)
}

fn write_proc_self(file: &str, text: &str) -> Result<(), TestbedError> {
    let path = format!("/proc/self/{file}");
    match fs::write(&path, text) {
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            Err(TestbedError::missing(MissingRequirement::UserNamespace, cause))
        }
        result => result.context(|| format!("cannot write {path}")),
    }
}
