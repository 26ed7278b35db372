//! Names of hosts: which of them a browser can be sent to, and how they are compared.

use std::borrow::Cow;

/// Returns whether a browser can be sent to a host: it has only the characters of names, and a port perhaps. Rules for names have a syntax of
/// their own, in which an IPv6 address and what else a URL allows has no place.
#[must_use]
pub fn is_replayable_host(host: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    // The lab's own addresses are not mapped.
    let is_own = |name: &str| name.starts_with("10.99.");
    let (name, port) = host.split_once(':').unwrap_or((host, "443"));
    !name.is_empty() && !is_own(name) && name.chars().all(is_plain) && port.parse::<u16>().is_ok()
}

/// Returns a host as recorded responses have it: in lower case, and with the port unless it is 443.
pub(super) fn as_recorded(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix(":443").unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return host.to_ascii_lowercase().into();
    }
    host.into()
}
