//! Rules for allowed destinations.

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;

use super::address::{self, Nat64};
use super::failure::ForwardError;
use super::pattern::{DestinationPattern, PortRange};
use super::spec::ForwardProxySpec;
use crate::ip_net::IpNet;

/// The rules for destinations.
#[derive(Debug)]
pub(super) struct DestinationRules {
    allow: Vec<DestinationPattern>,
    deny: Vec<DestinationPattern>,
    ports: Vec<PortRange>,
    nat64: Vec<Nat64>,
    /// This gateway's admin port, which is always denied.
    admin_port: OnceLock<u16>,
}

impl DestinationRules {
    pub(super) fn new(spec: &ForwardProxySpec) -> Self {
        Self {
            allow: spec.allow.clone(),
            deny: spec.deny.clone(),
            ports: spec.ports.clone(),
            nat64: spec.nat64.clone(),
            admin_port: OnceLock::new(),
        }
    }

    /// Denies the admin port, at every address of this machine, whatever the rules allow. There is only one.
    pub(super) fn deny_admin_port(&self, port: u16) {
        let denied = *self.admin_port.get_or_init(|| port);
        debug_assert_eq!(denied, port, "the admin port of a running gateway does not change");
    }

    /// Checks a host's name and port. Its addresses are checked once they are resolved.
    ///
    /// # Errors
    /// The destination is forbidden; the failure contains the reason.
    pub(super) fn check_name(&self, host: &str, port: u16) -> Result<(), ForwardError> {
        if !self.ports.iter().any(|ports| ports.contains(port)) {
            return Err(ForwardError::request_denied(format!("port {port} is not allowed")));
        }
        if self.deny.iter().any(|pattern| pattern.matches_name(host, port)) {
            return Err(ForwardError::request_denied(format!("{host}:{port} is not allowed")));
        }
        Ok(())
    }

    /// Checks `ip`, an address of `host`.
    ///
    /// # Errors
    /// The reason why the address is forbidden, as text; or [`io::ErrorKind::ResourceBusy`] if it
    /// cannot be checked for now.
    pub(super) fn check_address(&self, host: &str, ip: IpAddr, port: u16) -> io::Result<()> {
        let translated_ip = self.nat64.iter().find_map(|prefix| prefix.embedded_ipv4(ip));
        let embedded_ip = address::embedded_ipv4(ip).or(translated_ip);
        let is_denied = |ip| self.deny.iter().any(|pattern| pattern.matches_address(ip, port));
        if is_denied(ip) || embedded_ip.is_some_and(is_denied) {
            return Err(forbidden_error("a rule denies its address"));
        }
        // For an address behind the operator's translator, the translated address counts too.
        for ip in [Some(ip), translated_ip].into_iter().flatten() {
            self.check_special(ip, port)?;
        }
        let is_allowed = |ip| self.allowing_networks(ip, port).next().is_some();
        if is_allowed(ip) || translated_ip.is_some_and(is_allowed) {
            return Ok(());
        }
        if self.allow.is_empty() || self.allow.iter().any(|p| p.matches_name(host, port)) {
            return Ok(());
        }
        Err(forbidden_error("no rule allows it"))
    }

    /// Returns the networks that allow an address.
    fn allowing_networks(&self, ip: IpAddr, port: u16) -> impl Iterator<Item = IpNet> {
        self.allow.iter().filter_map(move |pattern| pattern.network_of(ip, port))
    }

    /// Denies a special address, unless the network that makes it special, or a part of it, is
    /// allowed explicitly; and an address of this machine other than loopback, unless exactly that
    /// address is. `0.0.0.0/0` means the public internet, not what only this machine can reach. An
    /// allowed name allows no such address: the name's owner decides what it resolves to.
    fn check_special(&self, ip: IpAddr, port: u16) -> io::Result<()> {
        if let Some((network, purpose)) = address::special_network(ip)
            && !self.allowing_networks(ip, port).any(|opened| network.covers(&opened))
        {
            return Err(forbidden_error(format!("its address is {purpose}")));
        }
        let is_own = address::is_own(ip).map_err(|error| {
            let what =
                format!("cannot determine whether its address is this gateway's own: {error}");
            io::Error::new(io::ErrorKind::ResourceBusy, what)
        })?;
        // Services on this machine often trust local peers.
        if is_own {
            if self.admin_port.get() == Some(&port) {
                return Err(forbidden_error("it is this gateway's admin port"));
            }
            if !ip.is_loopback()
                && !self.allowing_networks(ip, port).any(|opened| opened.is_single_address())
            {
                return Err(forbidden_error("its address is this gateway's own"));
            }
        }
        Ok(())
    }
}

fn forbidden_error(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> DestinationRules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let spec = ForwardProxySpec {
            allow: parse(allow),
            deny: parse(deny),
            ..ForwardProxySpec::default()
        };
        DestinationRules::new(&spec)
    }

    fn is_allowed(rules: &DestinationRules, host: &str, ip: &str) -> bool {
        rules.check_address(host, ip.parse().unwrap(), 443).is_ok()
    }

    #[test]
    fn public_addresses_are_allowed_and_no_others() {
        let rules = rules(&[], &[]);
        assert!(rules.check_name("example.com", 443).is_ok());
        assert!(rules.check_name("example.com", 25).is_err());
        assert!(is_allowed(&rules, "example.com", "8.8.8.8"));
        assert!(!is_allowed(&rules, "example.com", "10.0.0.1"));
        assert!(!is_allowed(&rules, "example.com", "::ffff:8.8.8.8"));
    }

    #[test]
    fn hosts_that_the_allow_list_does_not_match_are_denied() {
        let rules = rules(&["*.example.com", "10.1.0.0/16"], &[]);
        assert!(is_allowed(&rules, "a.example.com", "8.8.8.8"));
        assert!(!is_allowed(&rules, "example.org", "8.8.8.8"));
        assert!(is_allowed(&rules, "example.org", "10.1.2.3"), "the network is allowed");
        assert!(
            !is_allowed(&rules, "a.example.com", "10.2.0.1"),
            "a name allows no private network"
        );
    }

    #[test]
    fn deny_takes_precedence_over_allow() {
        let rules = rules(&["0.0.0.0/0", "::/0"], &["bad.example", "10.0.0.0/8"]);
        assert!(rules.check_name("bad.example", 443).is_err());
        assert!(is_allowed(&rules, "x", "8.8.8.8") && is_allowed(&rules, "x", "2606:4700::1111"));
        assert!(!is_allowed(&rules, "x", "10.0.0.1"));
        assert!(!is_allowed(&rules, "x", "::ffff:10.0.0.1"), "whatever its form");
    }

    #[test]
    fn special_addresses_are_allowed_only_by_their_own_network() {
        let allow_all = rules(&["0.0.0.0/0", "::/0", "*"], &[]);
        for denied_ip in [
            "127.0.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "10.0.0.1",
            "100.100.100.200",
            "::1",
            "fd00:ec2::254",
            "fe80::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "4000::1",
        ] {
            assert!(!is_allowed(&allow_all, "x", denied_ip), "{denied_ip}");
        }
        for (allowed_network, ip) in [
            ("127.0.0.0/8", "127.0.0.1"),
            ("169.254.169.254", "169.254.169.254"),
            ("168.63.129.16", "168.63.129.16"),
            ("10.1.0.0/16", "10.1.2.3"),
            ("fd00::/8", "fd00:ec2::254"),
            ("64:ff9b::/96", "64:ff9b::7f00:1"),
        ] {
            assert!(is_allowed(&rules(&[allowed_network], &[]), "x", ip), "{allowed_network}");
        }
        assert!(!is_allowed(&rules(&["168.0.0.0/8"], &[]), "x", "168.63.129.16"));
    }

    #[test]
    fn a_configured_nat64_prefix_allows_no_special_address() {
        let mut spec = ForwardProxySpec {
            nat64: vec!["2a00:64::/96".parse().unwrap()],
            ..ForwardProxySpec::default()
        };
        let with_nat64 = DestinationRules::new(&spec);
        assert!(is_allowed(&with_nat64, "x", "2a00:64::8.8.8.8"));
        for denied_ip in ["2a00:64::10.0.0.1", "2a00:64::127.0.0.1", "2a00:64::168.63.129.16"] {
            assert!(!is_allowed(&with_nat64, "x", denied_ip), "{denied_ip}");
        }
        spec.deny = vec!["8.8.8.8".parse().unwrap()];
        assert!(
            !is_allowed(&DestinationRules::new(&spec), "x", "2a00:64::8.8.8.8"),
            "whatever its form"
        );
        spec.allow = vec!["2a00:64::/96".parse().unwrap()];
        assert!(!is_allowed(&DestinationRules::new(&spec), "x", "2a00:64::10.0.0.1"));
    }

    #[test]
    fn the_admin_port_is_denied_whatever_is_allowed() {
        let spec = ForwardProxySpec {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            ..ForwardProxySpec::default()
        };
        let rules = DestinationRules::new(&spec);
        assert!(is_allowed(&rules, "x", "127.0.0.1"));
        rules.deny_admin_port(443);
        assert!(!is_allowed(&rules, "x", "127.0.0.1") && !is_allowed(&rules, "x", "127.0.0.2"));
        assert!(rules.check_address("x", "127.0.0.1".parse().unwrap(), 80).is_ok());
        assert!(rules.check_address("x", "8.8.8.8".parse().unwrap(), 443).is_err(), "not allowed");
    }

    #[test]
    fn own_addresses_are_allowed_only_one_by_one() {
        let mapped = rules(&["::ffff:0:0/96", "::ffff:127.0.0.3"], &[]);
        assert!(!is_allowed(&mapped, "x", "::ffff:127.0.0.1"));
        assert!(!is_allowed(&mapped, "x", "::ffff:127.0.0.2"));
        assert!(is_allowed(&mapped, "x", "::ffff:127.0.0.3"));
    }
}
