//! Rules for allowed destinations.

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;

use super::address::{self, Nat64};
use super::failure::ForwardError;
use super::pattern::{Pattern, PortRange};
use super::spec::ForwardProxySpec;
use crate::ip_net::IpNet;

/// The rules for destinations.
#[derive(Debug)]
pub(super) struct Rules {
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
    ports: Vec<PortRange>,
    nat64: Vec<Nat64>,
    /// This gateway's admin port, which is always closed.
    own_port: OnceLock<u16>,
}

impl Rules {
    pub(super) fn new(spec: &ForwardProxySpec) -> Self {
        Self {
            allow: spec.allow.clone(),
            deny: spec.deny.clone(),
            ports: spec.ports.clone(),
            nat64: spec.nat64.clone(),
            own_port: OnceLock::new(),
        }
    }

    /// Closes this port of this machine, whatever the rules allow.
    pub(super) fn close_port(&self, port: u16) {
        let closed = *self.own_port.get_or_init(|| port);
        debug_assert_eq!(closed, port, "the admin port of a running gateway does not change");
    }

    /// Checks a host's name and port. Its addresses are checked once they are resolved.
    ///
    /// # Errors
    /// The destination is forbidden; the failure contains the reason.
    pub(super) fn check_name(&self, host: &str, port: u16) -> Result<(), ForwardError> {
        if !self.ports.iter().any(|ports| ports.contains(port)) {
            return Err(ForwardError::denied(format!("port {port} is not allowed")));
        }
        if self.deny.iter().any(|pattern| pattern.covers_name(host, port)) {
            return Err(ForwardError::denied(format!("{host}:{port} is not allowed")));
        }
        Ok(())
    }

    /// Checks `ip`, an address of `host`.
    ///
    /// # Errors
    /// The reason why the address is forbidden, for people; or [`io::ErrorKind::ResourceBusy`] if it cannot be
    /// determined for now.
    pub(super) fn check_address(&self, host: &str, ip: IpAddr, port: u16) -> io::Result<()> {
        let translated = self.nat64.iter().find_map(|prefix| prefix.embedded(ip));
        let inside = address::embedded(ip).or(translated);
        let is_denied = |ip| self.deny.iter().any(|pattern| pattern.covers_address(ip, port));
        if is_denied(ip) || inside.is_some_and(is_denied) {
            return Err(forbidden("a rule denies its address"));
        }
        // For an address behind the operator's translator, the translated address counts too.
        for ip in [Some(ip), translated].into_iter().flatten() {
            self.check_closed(ip, port)?;
        }
        let opens = |ip| self.opened(ip, port).next().is_some();
        if opens(ip) || translated.is_some_and(opens) {
            return Ok(());
        }
        if self.allow.is_empty() || self.allow.iter().any(|p| p.covers_name(host, port)) {
            return Ok(());
        }
        Err(forbidden("no rule allows it"))
    }

    /// Returns the networks that allow an address.
    fn opened(&self, ip: IpAddr, port: u16) -> impl Iterator<Item = IpNet> {
        self.allow.iter().filter_map(move |pattern| pattern.network_of(ip, port))
    }

    /// Refuses a special address, unless the network that makes it special, or a part of it, is allowed explicitly;
    /// and an address of this machine other than loopback, unless exactly that address is. `0.0.0.0/0` stands for the
    /// public internet, not for what only this machine can reach. An allowed name opens no such address: its owner
    /// decides what it resolves to.
    fn check_closed(&self, ip: IpAddr, port: u16) -> io::Result<()> {
        if let Some((network, what)) = address::special(ip)
            && !self.opened(ip, port).any(|opened| network.covers(&opened))
        {
            return Err(forbidden(format!("its address is {what}")));
        }
        let is_own = address::is_own(ip).map_err(|error| {
            let what =
                format!("cannot determine whether its address is this gateway's own: {error}");
            io::Error::new(io::ErrorKind::ResourceBusy, what)
        })?;
        // Services on this machine often trust local peers.
        if is_own {
            if self.own_port.get() == Some(&port) {
                return Err(forbidden("it is this gateway's admin port"));
            }
            if !ip.is_loopback() && !self.opened(ip, port).any(|opened| opened.is_one()) {
                return Err(forbidden("its address is this gateway's own"));
            }
        }
        Ok(())
    }
}

fn forbidden(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let spec = ForwardProxySpec {
            allow: parse(allow),
            deny: parse(deny),
            ..ForwardProxySpec::default()
        };
        Rules::new(&spec)
    }

    fn address(rules: &Rules, host: &str, ip: &str) -> bool {
        rules.check_address(host, ip.parse().unwrap(), 443).is_ok()
    }

    #[test]
    fn public_addresses_are_allowed_and_no_others() {
        let rules = rules(&[], &[]);
        assert!(rules.check_name("example.com", 443).is_ok());
        assert!(rules.check_name("example.com", 25).is_err());
        assert!(address(&rules, "example.com", "8.8.8.8"));
        assert!(!address(&rules, "example.com", "10.0.0.1"));
        assert!(!address(&rules, "example.com", "::ffff:8.8.8.8"));
    }

    #[test]
    fn a_list_of_allowed_hosts_closes_the_rest() {
        let rules = rules(&["*.example.com", "10.1.0.0/16"], &[]);
        assert!(address(&rules, "a.example.com", "8.8.8.8"));
        assert!(!address(&rules, "example.org", "8.8.8.8"));
        assert!(address(&rules, "example.org", "10.1.2.3"), "the network is allowed");
        assert!(!address(&rules, "a.example.com", "10.2.0.1"), "a name opens no private network");
    }

    #[test]
    fn what_is_denied_is_denied() {
        let rules = rules(&["0.0.0.0/0", "::/0"], &["bad.example", "10.0.0.0/8"]);
        assert!(rules.check_name("bad.example", 443).is_err());
        assert!(address(&rules, "x", "8.8.8.8") && address(&rules, "x", "2606:4700::1111"));
        assert!(!address(&rules, "x", "10.0.0.1"));
        assert!(!address(&rules, "x", "::ffff:10.0.0.1"), "whatever its form");
    }

    #[test]
    fn what_is_not_public_is_opened_by_its_own_network_only() {
        let everything = rules(&["0.0.0.0/0", "::/0", "*"], &[]);
        for closed in [
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
            assert!(!address(&everything, "x", closed), "{closed}");
        }
        for (opened, ip) in [
            ("127.0.0.0/8", "127.0.0.1"),
            ("169.254.169.254", "169.254.169.254"),
            ("168.63.129.16", "168.63.129.16"),
            ("10.1.0.0/16", "10.1.2.3"),
            ("fd00::/8", "fd00:ec2::254"),
            ("64:ff9b::/96", "64:ff9b::7f00:1"),
        ] {
            assert!(address(&rules(&[opened], &[]), "x", ip), "{opened}");
        }
        assert!(!address(&rules(&["168.0.0.0/8"], &[]), "x", "168.63.129.16"));
    }

    #[test]
    fn a_translator_of_the_operators_own_opens_nothing() {
        let mut spec = ForwardProxySpec {
            nat64: vec!["2a00:64::/96".parse().unwrap()],
            ..ForwardProxySpec::default()
        };
        let usual = Rules::new(&spec);
        assert!(address(&usual, "x", "2a00:64::8.8.8.8"));
        for closed in ["2a00:64::10.0.0.1", "2a00:64::127.0.0.1", "2a00:64::168.63.129.16"] {
            assert!(!address(&usual, "x", closed), "{closed}");
        }
        spec.deny = vec!["8.8.8.8".parse().unwrap()];
        assert!(!address(&Rules::new(&spec), "x", "2a00:64::8.8.8.8"), "whatever its form");
        spec.allow = vec!["2a00:64::/96".parse().unwrap()];
        assert!(!address(&Rules::new(&spec), "x", "2a00:64::10.0.0.1"));
    }

    #[test]
    fn the_gateways_own_ports_are_closed_whatever_is_allowed() {
        let spec = ForwardProxySpec {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            ..ForwardProxySpec::default()
        };
        let rules = Rules::new(&spec);
        assert!(address(&rules, "x", "127.0.0.1"));
        rules.close_port(443);
        assert!(!address(&rules, "x", "127.0.0.1") && !address(&rules, "x", "127.0.0.2"));
        assert!(rules.check_address("x", "127.0.0.1".parse().unwrap(), 80).is_ok());
        assert!(rules.check_address("x", "8.8.8.8".parse().unwrap(), 443).is_err(), "not allowed");
    }

    #[test]
    fn this_machines_addresses_are_opened_one_by_one_whatever_their_form() {
        let mapped = rules(&["::ffff:0:0/96", "::ffff:127.0.0.3"], &[]);
        assert!(!address(&mapped, "x", "::ffff:127.0.0.1"));
        assert!(!address(&mapped, "x", "::ffff:127.0.0.2"));
        assert!(address(&mapped, "x", "::ffff:127.0.0.3"));
    }
}
