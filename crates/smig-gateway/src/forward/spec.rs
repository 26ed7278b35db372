//! How a forward proxy is described.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use smig_settings::value::{deserialize_time, deserialize_time_or_never};

use super::address::Nat64;
use super::pattern::{Pattern, PortRange};
use super::users::SecretDigest;

/// Who may use the forward proxy, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardSpec {
    /// Users, each with the SHA-256 of a secret: `ann = "sha256:9f86d0..."`. The secret is a bearer
    /// token, or the password of basic authentication. A hash without salt protects long random
    /// secrets only; make one with `openssl rand -hex 32`.
    pub users: BTreeMap<String, SecretDigest>,
    /// A file of further users, one a line: `ann sha256:9f86d0...`. Empty lines and those that begin
    /// with # are skipped. A user may have several lines.
    pub users_file: Option<PathBuf>,
    /// Names of client certificates whose holders are users.
    pub subjects: Vec<String>,
    /// Destinations that are allowed; empty: all public ones. A network that is not public (private, loopback,
    /// link-local with a cloud's metadata, and so on) is opened by itself or a part of it, not by one that is
    /// wider: `0.0.0.0/0` is all that is public. This machine's own addresses are opened one by one.
    pub allow: Vec<Pattern>,
    /// Destinations that are refused, whatever `allow` says.
    pub deny: Vec<Pattern>,
    /// Prefixes of the operator's own translators from IPv6 to IPv4 (RFC 6052): an address behind one is what
    /// it is translated to. `64:ff9b::/96` is known.
    pub nat64: Vec<Nat64>,
    /// Ports that are allowed; all but mail's unless set.
    pub ports: Vec<PortRange>,
    /// Tunnels of one user that may be open at once.
    pub max_tunnels: usize,
    /// Connections of one user to one origin of requests (not of tunnels), of all workers together.
    pub max_connections: usize,
    /// Requests of one user to one origin that may wait for one of them; further ones are answered 503.
    pub max_waiting: usize,
    /// Until there is a connection to the destination.
    #[serde(deserialize_with = "deserialize_time")]
    pub connect_timeout: Duration,
    /// From the request to the head of an HTTP/1.1 origin's response.
    #[serde(deserialize_with = "deserialize_time")]
    pub response_timeout: Duration,
    /// How long a tunnel may rest before it is reset; `"never"`: as long as it likes.
    #[serde(deserialize_with = "deserialize_time_or_never")]
    pub tunnel_idle: Option<Duration>,
}

impl Default for ForwardSpec {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            users_file: None,
            subjects: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            nat64: Vec::new(),
            ports: vec![PortRange::new(1, 24), PortRange::new(26, u16::MAX)],
            max_tunnels: 1024,
            max_connections: 256,
            max_waiting: 1024,
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(120),
            tunnel_idle: Some(Duration::from_secs(3600)),
        }
    }
}

impl ForwardSpec {
    /// Whether nothing but the users differs.
    pub(super) fn leads_as(&self, other: &Self) -> bool {
        let Self { users, users_file, subjects, .. } = other.clone();
        Self { users, users_file, subjects, ..self.clone() } == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_as_the_file_has_it() {
        let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let spec: ForwardSpec = toml::from_str(&format!(
            r#"
            users = {{ ann = "{digest}" }}
            allow = ["*.example.com", "10.0.0.0/8:443"]
            deny = ["*:6000-6100"]
            ports = ["443", "8000-8999"]
            tunnel_idle = "never"
            "#
        ))
        .unwrap();
        assert_eq!(spec.users.len(), 1);
        assert_eq!(spec.tunnel_idle, None);
        let mut others = ForwardSpec { users: BTreeMap::new(), ..spec.clone() };
        others.subjects.push("ann".to_owned());
        assert!(spec.leads_as(&others) && spec.leads_as(&spec));
        others.max_waiting = 1;
        assert!(!spec.leads_as(&others));
        assert_eq!(spec.ports, [PortRange::new(443, 443), PortRange::new(8000, 8999)]);
        for bad in
            ["user = {}", "users = { a = \"test\" }", "allow = [\"a b\"]", "ports = [\"9-1\"]"]
        {
            assert!(toml::from_str::<ForwardSpec>(bad).is_err(), "{bad}");
        }
    }
}
