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
        TestbedError::missing(missing_requirement(errno, count_threads()), errno)
    })?;
    // A group map is only allowed after setgroups() is denied.
    write_proc_self("setgroups", "deny")?;
    write_proc_self("uid_map", &format!("{uid} {uid} 1"))?;
    write_proc_self("gid_map", &format!("{gid} {gid} 1"))?;
    Ok(Privilege::UserNamespace)
}

/// Returns why a user namespace could not be created. EINVAL has two causes: a second thread, or a kernel without user
/// namespaces.
fn missing_requirement(errno: Errno, thread_count: usize) -> MissingRequirement {
    match errno {
        Errno::INVAL if thread_count > 1 => MissingRequirement::CalledTooLate,
        _ => MissingRequirement::UserNamespace,
    }
}

/// Returns the number of this process's threads; 1 if it is unknown.
fn count_threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_user_namespaces_is_no_bug_of_the_program() {
        for (errno, thread_count, expected) in [
            (Errno::INVAL, 1, MissingRequirement::UserNamespace),
            (Errno::INVAL, 2, MissingRequirement::CalledTooLate),
            (Errno::PERM, 2, MissingRequirement::UserNamespace),
        ] {
            assert_eq!(missing_requirement(errno, thread_count), expected, "{errno}");
        }
        // The test harness runs this on a thread of its own.
        assert!(count_threads() > 1);
    }

    #[test]
    fn a_call_that_came_too_late_is_no_reason_to_skip_a_test() {
        let error = |requirement| TestbedError::missing(requirement, Errno::INVAL);
        assert!(error(MissingRequirement::UserNamespace).is_missing_requirement());
        assert!(!error(MissingRequirement::CalledTooLate).is_missing_requirement());
    }
}
