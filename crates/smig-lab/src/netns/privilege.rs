//! The right to make network namespaces.

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

/// Where the right to make network namespaces comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The process had it already.
    Root,
    /// A user namespace of the process's own. The process keeps its user and
    /// group: files that it writes belong to whoever started it.
    UserNamespace,
}

/// Gets the right to make network namespaces, in a new user namespace unless
/// the process has it already.
///
/// To be called first in `main`: the kernel refuses it to a process with more
/// than one thread, so also before any async runtime is built.
///
/// # Errors
/// [`LabError::Missing`] where user namespaces are forbidden, with what to do.
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
    // A group map is only allowed once setgroups() is given up.
    write_own("setgroups", "deny")?;
    write_own("uid_map", &format!("{uid} {uid} 1"))?;
    write_own("gid_map", &format!("{gid} {gid} 1"))?;
    Ok(Privilege::UserNamespace)
}

/// Lets the programs that the calling thread starts enter hosts as well. Root's can without; in a user
/// namespace a program that is started loses all rights that are not handed on to it.
///
/// # Errors
/// When the process itself has not that right.
pub fn hand_on_rights() -> io::Result<()> {
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
