//! IP networks: addresses with a common prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error as _};

/// `192.0.2.0/24`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNet {
    addr: IpAddr,
    bits: u32,
}

impl IpNet {
    /// Every address whose first `bits` bits are those of `addr`.
    pub(crate) const fn new(addr: IpAddr, bits: u32) -> Self {
        Self { addr, bits }
    }

    /// Returns whether this network contains all addresses of the other one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.addr)
    }

    /// Returns the address as configured; its host bits may be set.
    pub(crate) const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Returns the length of the prefix in bits.
    pub(crate) const fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns whether the network is a single address.
    pub(crate) const fn is_single_address(&self) -> bool {
        self.bits == if self.addr.is_ipv4() { 32 } else { 128 }
    }

    /// Returns whether the network contains the address. An IPv4-mapped IPv6 address counts as IPv6; use its
    /// [canonical form](IpAddr::to_canonical) to match IPv4 networks.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(own), IpAddr::V4(addr)) => {
                let shift = 32_u32.saturating_sub(self.bits);
                own.to_bits().checked_shr(shift) == addr.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(addr)) => {
                let shift = 128_u32.saturating_sub(self.bits);
                own.to_bits().checked_shr(shift) == addr.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for IpNet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let syntax_error = || format!("{text:?} is not an address or a network such as 10.0.0.0/8");
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| syntax_error())?;
        let max_bits = if addr.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(max_bits), str::parse).map_err(|_| syntax_error())?;
        if bits > max_bits {
            return Err(syntax_error());
        }
        Ok(Self { addr, bits })
    }
}

impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.bits)
    }
}

impl<'de> Deserialize<'de> for IpNet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_only_its_own_addresses() {
        let contains = |network: &str, addr: &str| {
            network.parse::<IpNet>().unwrap().contains(addr.parse().unwrap())
        };
        assert!(contains("10.0.0.0/8", "10.255.0.1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("0.0.0.0/0", "192.0.2.1") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("192.0.2.1", "192.0.2.1") && !contains("192.0.2.1", "192.0.2.2"));
        assert!(!contains("10.0.0.0/8", "::ffff:10.0.0.1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && contains("::/0", "::1"));
        for bad in ["", "10.0.0.0/33", "::/129", "10/8", "10.0.0.0/-1", "host"] {
            assert!(bad.parse::<IpNet>().is_err(), "{bad}");
        }
    }
}
