//! Classifies addresses as public or special.
//!
//! After IANA's registries of special-purpose addresses. An address that is not known to be public counts as special:
//! this prevents access through the proxy to the network that it runs in.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

use rustix::io::Errno;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::ip_net::IpNet;

/// IPv4 networks that are not public, with their purpose.
const SPECIAL_V4: [([u8; 4], u32, &str); 18] = [
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "for carrier-grade NAT"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([168, 63, 129, 16], 32, "internal to a cloud (Azure)"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "for protocols"),
    ([192, 0, 2, 0], 24, "for documentation"),
    ([192, 31, 196, 0], 24, "for AS112"),
    ([192, 52, 193, 0], 24, "for AMT"),
    ([192, 88, 99, 0], 24, "for 6to4 relays"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "for benchmarks"),
    ([198, 51, 100, 0], 24, "for documentation"),
    ([203, 0, 113, 0], 24, "for documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved"),
];

/// IPv6 networks that are not public, some of them within 2000::/3, with their purpose.
const SPECIAL_V6: [(Ipv6Addr, u32, &str); 17] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an embedded IPv4 address"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, "an embedded IPv4 address"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "for NAT64"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "for NAT64"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard-only"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "for Teredo"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "for 6to4"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "for AS112"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Returns the network that makes an address special, and its purpose; `None` if the address is public.
pub(super) fn special_network(ip: IpAddr) -> Option<(IpNet, &'static str)> {
    let v4 = SPECIAL_V4
        .iter()
        .map(|&(addr, bits, what)| (IpNet::new(Ipv4Addr::from(addr).into(), bits), what));
    let v6 = SPECIAL_V6.iter().map(|&(addr, bits, what)| (IpNet::new(addr.into(), bits), what));
    let listed_network = v4.chain(v6).find(|(network, _)| network.contains(ip));
    listed_network.or_else(|| match ip {
        IpAddr::V6(v6) if v6.octets()[0] >> 5 != 1 => {
            // Outside 2000::/3: the network of the first 16 bits.
            let [first, ..] = v6.segments();
            let network = Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0);
            Some((IpNet::new(network.into(), 16), "reserved"))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    })
}

/// Returns whether the address is one of this machine's.
///
/// # Errors
/// A resource needed for the check is exhausted, such as file descriptors.
pub(super) fn is_own(ip: IpAddr) -> io::Result<bool> {
    let ip = ip.to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return Ok(true);
    }
    interpret(query_kernel(ip))
}

/// Queries the kernel whether an address is this machine's, with a socket that sends nothing.
fn query_kernel(ip: IpAddr) -> io::Result<bool> {
    match ip {
        // Only an own address can be a source. Others fail at `bind`; with `ip_nonlocal_bind`, at `connect`. The source
        // that the kernel would select for an own address is not always that address, but may be the primary one of
        // its network.
        IpAddr::V4(_) => {
            UdpSocket::bind((ip, 0))?.connect((ip, 9))?;
            Ok(true)
        }
        // For an own address the kernel selects that address (RFC 6724 section 5 rule 1). With `ip_nonlocal_bind`,
        // both calls above succeed for all others.
        IpAddr::V6(_) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            socket.connect((ip, 9))?;
            Ok(socket.local_addr()?.ip() == ip)
        }
    }
}

/// Interprets the result of [`query_kernel`]. An address that cannot be a source or has no route is
/// not this machine's; if a resource is exhausted, the error remains; after any other error, the
/// address counts as this machine's.
fn interpret(result: io::Result<bool>) -> io::Result<bool> {
    const NOT_OWN_ERRORS: [Errno; 6] = [
        Errno::NETUNREACH,
        Errno::HOSTUNREACH,
        Errno::NETDOWN,
        Errno::ADDRNOTAVAIL,
        Errno::AFNOSUPPORT,
        Errno::INVAL,
    ];
    // The last two: all ports are in use.
    const RESOURCE_ERRORS: [Errno; 6] =
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRINUSE, Errno::AGAIN];
    let Err(error) = result else { return result };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) if NOT_OWN_ERRORS.contains(&errno) => Ok(false),
        Some(errno) if RESOURCE_ERRORS.contains(&errno) => Err(error),
        Some(_) | None => Ok(true),
    }
}

/// A prefix of the operator's own NAT64 translator (RFC 6052 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat64(IpNet);

impl Nat64 {
    /// Returns the IPv4 address that is embedded in an address with this prefix.
    pub(super) fn embedded_ipv4(self, ip: IpAddr) -> Option<IpAddr> {
        let IpAddr::V6(v6) = ip else { return None };
        if !self.0.contains(ip) {
            return None;
        }
        // Bits 64 to 71 are zero, and not part of the address.
        let bits = v6.to_bits();
        let high = bits >> (128 - 64);
        let low = bits & (u128::MAX >> 72);
        let packed = (high << 56) | low;
        // 120 bits: prefix, address, suffix. A prefix of 96 bits contains the zero byte itself.
        let address = match self.0.bits() {
            96 => bits,
            prefix => packed >> (120 - 32 - prefix),
        };
        u32::try_from(address & u128::from(u32::MAX)).ok().map(|v4| Ipv4Addr::from_bits(v4).into())
    }
}

impl FromStr for Nat64 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network: IpNet = text.parse()?;
        if network.addr().is_ipv4() || ![32, 40, 48, 56, 64, 96].contains(&network.bits()) {
            return Err(format!(
                "{text:?} is not a NAT64 prefix (IPv6, with 32, 40, 48, 56, 64 or 96 bits)"
            ));
        }
        Ok(Self(network))
    }
}

impl<'de> Deserialize<'de> for Nat64 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Returns the IPv4 address that is embedded in an IPv6 address (mapped, compatible, NAT64 or 6to4).
pub(super) fn embedded_ipv4(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = ip else { return None };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| {
        Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)).into())
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0x64, 0xff9b, ..] => v4(g, h),
        [0x2002, ..] => v4(b, c),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_recognized() {
        for public in
            ["1.1.1.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00::1"]
        {
            assert!(special_network(public.parse().unwrap()).is_none(), "{public}");
        }
        for (ip, expected_purpose) in [
            ("0.0.0.0", "unspecified"),
            ("10.0.0.1", "private"),
            ("100.64.0.1", "for carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.255", "loopback"),
            ("168.63.129.16", "internal to a cloud (Azure)"),
            ("169.254.169.254", "link-local"),
            ("172.31.255.255", "private"),
            ("192.0.2.1", "for documentation"),
            ("192.168.1.1", "private"),
            ("198.19.0.1", "for benchmarks"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:8.8.8.8", "an embedded IPv4 address"),
            ("::ffff:127.0.0.1", "an embedded IPv4 address"),
            ("::127.0.0.1", "an embedded IPv4 address"),
            ("64:ff9b::7f00:1", "for NAT64"),
            ("64:ff9b:1::1", "for NAT64"),
            ("100::1", "discard-only"),
            ("2001::1", "for Teredo"),
            ("2001:db8::1", "for documentation"),
            ("2002:7f00:1::", "for 6to4"),
            ("3fff::1", "for documentation"),
            ("fd00::1", "private"),
            ("fe80::1", "link-local"),
            ("ff02::1", "multicast"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            let (network, purpose) = special_network(ip).unwrap();
            assert!(purpose == expected_purpose && network.contains(ip), "{ip}: {purpose}");
        }
    }

    #[test]
    fn ipv4_addresses_behind_a_nat64_prefix_are_extracted() {
        // RFC 6052 section 2.4.
        for (prefix, ip) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let nat64: Nat64 = prefix.parse().unwrap();
            let embedded = nat64.embedded_ipv4(ip.parse().unwrap());
            assert_eq!(embedded, Some("192.0.2.33".parse().unwrap()), "{prefix}");
            assert_eq!(nat64.embedded_ipv4("2001:db9::1".parse().unwrap()), None);
        }
        for bad in ["10.0.0.0/8", "2001:db8::/33", "2001:db8::1", "x"] {
            assert!(bad.parse::<Nat64>().is_err(), "{bad}");
        }
    }

    #[test]
    fn this_machines_addresses_are_recognized() {
        let is_own = |ip: &str| is_own(ip.parse().unwrap()).unwrap();
        for own in ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "::ffff:127.0.0.2"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(!is_own(other), "{other}");
        }
        // An own address for which the kernel selects another one as source.
        assert!(query_kernel("127.0.0.2".parse().unwrap()).unwrap());
    }

    #[test]
    fn exhausted_resources_leave_ownership_unknown() {
        let interpret_errno =
            |errno: Errno| interpret(Err(errno.into())).map_err(|error| error.raw_os_error());
        assert_eq!(interpret_errno(Errno::MFILE), Err(Some(Errno::MFILE.raw_os_error())));
        assert_eq!(interpret_errno(Errno::NETUNREACH), Ok(false));
        assert_eq!(interpret_errno(Errno::PERM), Ok(true));
    }

    #[test]
    fn embedded_ipv4_addresses_are_extracted() {
        let embedded = |ip: &str| embedded_ipv4(ip.parse().unwrap()).map(|ip| ip.to_string());
        assert_eq!(embedded("::ffff:10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(embedded("64:ff9b::a00:1").as_deref(), Some("10.0.0.1"));
        assert_eq!(embedded("2002:a00:1::").as_deref(), Some("10.0.0.1"));
        assert_eq!(embedded("2606:4700::1"), None);
        assert_eq!(embedded("10.0.0.1"), None);
    }
}
