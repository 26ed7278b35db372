//! Which destinations are allowed.

use std::net::IpAddr;

use super::address;
use super::failure::Failure;
use super::pattern::{Pattern, PortRange};
use super::spec::ForwardSpec;

/// The rules about destinations.
#[derive(Debug)]
pub(super) struct Rules {
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
    ports: Vec<PortRange>,
}

impl Rules {
    pub(super) fn new(spec: &ForwardSpec) -> Self {
        Self { allow: spec.allow.clone(), deny: spec.deny.clone(), ports: spec.ports.clone() }
    }

    /// Whether a host may be asked for at all, by its name and port. Its addresses are checked when
    /// they are known.
    ///
    /// # Errors
    /// It may not; the failure says why.
    pub(super) fn check_name(&self, host: &str, port: u16) -> Result<(), Failure> {
        if !self.ports.iter().any(|ports| ports.contains(port)) {
            return Err(Failure::denied(format!("port {port} is not allowed")));
        }
        if self.deny.iter().any(|pattern| pattern.covers_name(host, port)) {
            return Err(Failure::denied(format!("{host}:{port} is not allowed")));
        }
        Ok(())
    }

    /// Whether `ip`, an address of `host`, may be dialled.
    ///
    /// # Errors
    /// Why not, for people.
    pub(super) fn check_address(&self, host: &str, ip: IpAddr, port: u16) -> Result<(), String> {
        let inside = address::embedded(ip);
        let is_denied = |ip| self.deny.iter().any(|pattern| pattern.covers_address(ip, port));
        if is_denied(ip) || inside.is_some_and(is_denied) {
            return Err("a rule denies its address".to_owned());
        }
        if self.allow.iter().any(|pattern| pattern.covers_address(ip, port)) {
            return Ok(());
        }
        // A name does not open a network that is not public: names point where their owners like.
        if let Some(what) = address::special(ip) {
            return Err(format!("its address is {what}"));
        }
        if self.allow.is_empty() || self.allow.iter().any(|p| p.covers_name(host, port)) {
            return Ok(());
        }
        Err("no rule allows it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let spec = ForwardSpec { allow: parse(allow), deny: parse(deny), ..ForwardSpec::default() };
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
        assert!(address(&rules, "x", "127.0.0.1"));
        assert!(!address(&rules, "x", "10.0.0.1"));
        assert!(!address(&rules, "x", "::ffff:10.0.0.1"), "whatever its form");
    }
}
