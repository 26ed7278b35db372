//! The addresses that a gateway listens on, and how a reload changes them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use smig::{CleartextTrust, ListenerId, Server, ServerTls};
use smig_settings::Diagnostics;

use crate::config::{Config, ListenSecurity};

/// A configured address.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfiguredAddr {
    /// Index of its `[[listen]]`.
    pub(super) number: usize,
    pub(super) address: SocketAddr,
    pub(super) protocol: ListenSecurity,
    pub(super) redirect: Option<u16>,
}

/// A configured address, and its listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundListener {
    pub(super) id: ListenerId,
    pub(super) configured: SocketAddr,
    pub(super) protocol: ListenSecurity,
    pub(super) redirect: Option<u16>,
    pub(super) bound: SocketAddr,
}

impl BoundListener {
    pub(super) const fn new(wanted: &ConfiguredAddr, id: ListenerId, bound: SocketAddr) -> Self {
        let ConfiguredAddr { address: configured, protocol, redirect, .. } = *wanted;
        Self { id, configured, protocol, redirect, bound }
    }
}

/// Opens the wanted addresses that are not open yet, all or none. Returns the listeners of all
/// wanted addresses, and those to close. An address whose protocol changes is in both.
pub(super) fn open(
    server: &mut Server,
    current: &[BoundListener],
    wanted: &[ConfiguredAddr],
    tls: Option<&ServerTls>,
) -> Result<(Vec<BoundListener>, Vec<BoundListener>), (usize, smig::Error)> {
    let (mut listeners, mut opened, mut unmatched) = (Vec::new(), Vec::new(), current.to_vec());
    for addr in wanted {
        let ConfiguredAddr { number, address: configured, protocol, .. } = *addr;
        let same = |listener: &BoundListener| {
            listener.configured == configured && listener.protocol == protocol
        };
        if let Some(index) = unmatched.iter().position(same) {
            // Each listener is matched once, even if several have port 0.
            let listener = unmatched.swap_remove(index);
            listeners.push(BoundListener::new(addr, listener.id, listener.bound));
            continue;
        }
        let listening = match (trust(protocol), tls) {
            (Some(trust), _) => server.listen_cleartext(configured, trust),
            (None, Some(tls)) => server.listen(configured, tls),
            (None, None) => continue,
        };
        match listening {
            Ok(listening) => {
                opened.push(listening.id);
                listeners.push(BoundListener::new(addr, listening.id, listening.addr));
            }
            Err(error) => {
                for id in opened {
                    server.close(id);
                }
                return Err((number, error));
            }
        }
    }
    Ok((listeners, unmatched))
}

/// Returns the trust in cleartext peers; `None` for TLS.
pub(super) const fn trust(protocol: ListenSecurity) -> Option<CleartextTrust> {
    match protocol {
        ListenSecurity::Tls => None,
        ListenSecurity::Cleartext => Some(CleartextTrust::None),
        ListenSecurity::TrustedCleartext => Some(CleartextTrust::TrustedNetwork),
    }
}

/// Returns the HTTPS ports of the listeners that redirect.
pub(super) fn https_ports(listeners: &[BoundListener]) -> HashMap<ListenerId, u16> {
    listeners.iter().filter_map(|listener| Some((listener.id, listener.redirect?))).collect()
}

/// Returns all configured addresses, each checked to be free or already open.
pub(super) fn check_addresses(
    config: &Config,
    listeners: &[BoundListener],
) -> Result<Vec<ConfiguredAddr>, Diagnostics> {
    let mut all = Vec::new();
    for (number, listen) in config.listen.iter().enumerate() {
        for &address in &listen.address {
            let is_open = listeners.iter().any(|listener| listener.configured == address);
            if !is_open && let Err(error) = try_bind(address) {
                // `localhost` on a machine without IPv6.
                if address.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST)
                    && listen.address.len() > 1
                    && error.kind() != io::ErrorKind::AddrInUse
                {
                    continue;
                }
                let what = format!("cannot listen on {address}: {error}");
                return Err(config.fault(&["listen", &number.to_string(), "address"], what));
            }
            let redirect = listen.redirect_to_https;
            all.push(ConfiguredAddr { number, address, protocol: listen.protocol, redirect });
        }
    }
    if all.is_empty() {
        return Err(config.fault(&["listen"], "no addresses; add [[listen]] with an address"));
    }
    Ok(all)
}

/// Binds an address to check that it is free. Workers share theirs (SO_REUSEPORT), so a second gateway would silently
/// receive half of the first one's connections.
fn try_bind(address: SocketAddr) -> io::Result<()> {
    std::net::TcpListener::bind(address).map(drop)
}
