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
    pub(super) listen_index: usize,
    pub(super) address: SocketAddr,
    pub(super) protocol: ListenSecurity,
    pub(super) https_port: Option<u16>,
}

/// A configured address, and its listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundListener {
    pub(super) id: ListenerId,
    pub(super) configured_addr: SocketAddr,
    pub(super) protocol: ListenSecurity,
    pub(super) https_port: Option<u16>,
    pub(super) bound_addr: SocketAddr,
}

impl BoundListener {
    pub(super) const fn new(
        configured: &ConfiguredAddr,
        id: ListenerId,
        bound_addr: SocketAddr,
    ) -> Self {
        let ConfiguredAddr { address: configured_addr, protocol, https_port, .. } = *configured;
        Self { id, configured_addr, protocol, https_port, bound_addr }
    }
}

/// Opens the configured addresses that are not open yet, all or none. Returns the listeners of all
/// configured addresses, and those to close. An address whose protocol changes is in both.
pub(super) fn open(
    server: &mut Server,
    current_listeners: &[BoundListener],
    configured_addrs: &[ConfiguredAddr],
    tls: Option<&ServerTls>,
) -> Result<(Vec<BoundListener>, Vec<BoundListener>), (usize, smig::Error)> {
    let (mut listeners, mut opened_ids, mut unmatched_listeners) =
        (Vec::new(), Vec::new(), current_listeners.to_vec());
    for addr in configured_addrs {
        let ConfiguredAddr { listen_index, address: configured_addr, protocol, .. } = *addr;
        let is_same = |listener: &BoundListener| {
            listener.configured_addr == configured_addr && listener.protocol == protocol
        };
        if let Some(index) = unmatched_listeners.iter().position(is_same) {
            // Each listener is matched once, even if several have port 0.
            let listener = unmatched_listeners.swap_remove(index);
            listeners.push(BoundListener::new(addr, listener.id, listener.bound_addr));
            continue;
        }
        let result = match (cleartext_trust(protocol), tls) {
            (Some(trust), _) => server.listen_cleartext(configured_addr, trust),
            (None, Some(tls)) => server.listen(configured_addr, tls),
            (None, None) => continue,
        };
        match result {
            Ok(new_listener) => {
                opened_ids.push(new_listener.id);
                listeners.push(BoundListener::new(addr, new_listener.id, new_listener.addr));
            }
            Err(error) => {
                for id in opened_ids {
                    server.close(id);
                }
                return Err((listen_index, error));
            }
        }
    }
    Ok((listeners, unmatched_listeners))
}

/// Returns the trust in cleartext peers; `None` for TLS.
pub(super) const fn cleartext_trust(protocol: ListenSecurity) -> Option<CleartextTrust> {
    match protocol {
        ListenSecurity::Tls => None,
        ListenSecurity::Cleartext => Some(CleartextTrust::None),
        ListenSecurity::TrustedCleartext => Some(CleartextTrust::TrustedNetwork),
    }
}

/// Returns the HTTPS ports of the listeners that redirect.
pub(super) fn https_ports(listeners: &[BoundListener]) -> HashMap<ListenerId, u16> {
    listeners.iter().filter_map(|listener| Some((listener.id, listener.https_port?))).collect()
}

/// Returns all configured addresses, each checked to be free or already open.
pub(super) fn check_addresses(
    config: &Config,
    listeners: &[BoundListener],
) -> Result<Vec<ConfiguredAddr>, Diagnostics> {
    let mut configured_addrs = Vec::new();
    for (listen_index, listen) in config.listen.iter().enumerate() {
        for &address in &listen.address {
            let is_open = listeners.iter().any(|listener| listener.configured_addr == address);
            if !is_open && let Err(error) = try_bind(address) {
                // `localhost` on a machine without IPv6.
                if address.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST)
                    && listen.address.len() > 1
                    && error.kind() != io::ErrorKind::AddrInUse
                {
                    continue;
                }
                let what = format!("cannot listen on {address}: {error}");
                return Err(config.fault(&["listen", &listen_index.to_string(), "address"], what));
            }
            let https_port = listen.redirect_to_https;
            configured_addrs.push(ConfiguredAddr {
                listen_index,
                address,
                protocol: listen.protocol,
                https_port,
            });
        }
    }
    if configured_addrs.is_empty() {
        return Err(config.fault(&["listen"], "no addresses; add [[listen]] with an address"));
    }
    Ok(configured_addrs)
}

/// Binds an address to check that it is free. Workers share theirs (SO_REUSEPORT), so a second gateway would silently
/// receive half of the first one's connections.
fn try_bind(address: SocketAddr) -> io::Result<()> {
    std::net::TcpListener::bind(address).map(drop)
}
