//! The configuration of the forward proxy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use smig_settings::value::{deserialize_time, deserialize_time_or_never};

use super::address::Nat64;
use super::pattern::{DestinationPattern, PortRange};
use super::users::SecretDigest;

/// Users of the forward proxy, and what they may reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardProxySpec {
    /// Users, each with the SHA-256 of a secret: `ann = "sha256:9f86d0..."`. The secret is a bearer token, or the
    /// password of basic authentication. An unsalted hash protects only long random secrets; one is created by
    /// `openssl rand -hex 32`.
    pub users: BTreeMap<String, SecretDigest>,
    /// A file of further users, one per line: `ann sha256:9f86d0...`. Empty lines and lines that begin with # are
    /// skipped. A user may have several lines.
    pub users_file: Option<PathBuf>,
    /// Common names (in the subjects) of client certificates whose holders are users; alternative names do not count.
    pub certificate_subjects: Vec<String>,
    /// Allowed destinations; empty: all public ones. A network that is not public (private,
    /// loopback, link-local with cloud metadata, and so on) is allowed only by an entry for that
    /// network or a part of it, not by a wider one: `0.0.0.0/0` is everything public. This
    /// machine's own addresses other than loopback are allowed one by one.
    pub allow: Vec<DestinationPattern>,
    /// Denied destinations, whatever `allow` contains.
    pub deny: Vec<DestinationPattern>,
    /// Prefixes of the operator's own NAT64 translators (RFC 6052): the rules apply to the embedded IPv4 address too.
    /// The well-known `64:ff9b::/96` is not public, whatever is embedded: only `allow` permits it.
    pub nat64: Vec<Nat64>,
    /// Allowed ports; by default all but 25 (SMTP).
    pub ports: Vec<PortRange>,
    /// Maximum number of open tunnels per user.
    pub max_tunnels: usize,
    /// Maximum number of connections per user to one origin, over all workers; tunnels do not count.
    pub max_connections: usize,
    /// Maximum number of requests per user to one origin that wait for a connection; further ones are answered with
    /// 503.
    pub max_pending_requests: usize,
    /// Timeout of connecting to the destination; also of waiting for a connection or a stream to it while all are in use.
    #[serde(deserialize_with = "deserialize_time")]
    pub connect_timeout: Duration,
    /// From the end of the request (as far as the origin accepts it) to the header section of its response; not for gRPC.
    #[serde(deserialize_with = "deserialize_time")]
    pub response_timeout: Duration,
    /// Idle timeout of a tunnel, after which it is reset; `"never"`: no timeout.
    #[serde(deserialize_with = "deserialize_time_or_never")]
    pub tunnel_idle_timeout: Option<Duration>,
}

impl Default for ForwardProxySpec {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            users_file: None,
            certificate_subjects: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            nat64: Vec::new(),
            ports: vec![PortRange::new(1, 24), PortRange::new(26, u16::MAX)],
            max_tunnels: 1024,
            max_connections: 256,
            max_pending_requests: 1024,
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(120),
            tunnel_idle_timeout: Some(Duration::from_secs(3600)),
        }
    }
}

impl ForwardProxySpec {
    /// Returns whether the two differ in nothing but their users.
    pub(super) fn differs_only_in_users(&self, other: &Self) -> bool {
        let Self { users, users_file, certificate_subjects, .. } = other.clone();
        Self { users, users_file, certificate_subjects, ..self.clone() } == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_is_parsed_from_toml() {
        let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let spec: ForwardProxySpec = toml::from_str(&format!(
            r#"
            users = {{ ann = "{digest}" }}
            allow = ["*.example.com", "10.0.0.0/8:443"]
            deny = ["*:6000-6100"]
            ports = ["443", "8000-8999"]
            tunnel_idle_timeout = "never"
            "#
        ))
        .unwrap();
        assert_eq!(spec.users.len(), 1);
        assert_eq!(spec.tunnel_idle_timeout, None);
        let mut with_other_users = ForwardProxySpec { users: BTreeMap::new(), ..spec.clone() };
        with_other_users.certificate_subjects.push("ann".to_owned());
        assert!(spec.differs_only_in_users(&with_other_users) && spec.differs_only_in_users(&spec));
        with_other_users.max_pending_requests = 1;
        assert!(!spec.differs_only_in_users(&with_other_users));
        assert_eq!(spec.ports, [PortRange::new(443, 443), PortRange::new(8000, 8999)]);
        for bad in
            ["user = {}", "users = { a = \"test\" }", "allow = [\"a b\"]", "ports = [\"9-1\"]"]
        {
            assert!(toml::from_str::<ForwardProxySpec>(bad).is_err(), "{bad}");
        }
    }
}
