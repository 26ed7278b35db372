//! Limits connections per client address, so that one client cannot take all of the server's.
//!
//! An IPv6 client is identified by its /64 network, since a client usually has all of it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

const SHARD_COUNT: usize = 16;

/// A client's IPv4 address or IPv6 /64 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClientNetwork {
    V4(u32),
    V6(u64),
}

impl ClientNetwork {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.to_bits()),
            IpAddr::V6(ip) => Self::V6((ip.to_bits() >> 64) as u64),
        }
    }

    const fn shard_index(self) -> usize {
        let bits = match self {
            Self::V4(bits) => bits as u64,
            Self::V6(bits) => bits,
        };
        ((bits ^ (bits >> 8) ^ (bits >> 32)) % SHARD_COUNT as u64) as usize
    }
}

/// The number of open connections per client.
#[derive(Debug)]
pub(crate) struct ClientQuota {
    max: usize,
    shards: [Mutex<FxHashMap<ClientNetwork, usize>>; SHARD_COUNT],
}

/// A connection's permit of its client's quota; released on drop.
#[derive(Debug)]
pub(crate) struct ClientPermit {
    quota: Arc<ClientQuota>,
    client: ClientNetwork,
}

impl ClientQuota {
    /// Creates a quota of `max` connections per client.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, shards: Default::default() })
    }

    fn shard(
        &self,
        client: ClientNetwork,
    ) -> Option<MutexGuard<'_, FxHashMap<ClientNetwork, usize>>> {
        let shard = self.shards.get(client.shard_index())?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Acquires a permit; `None` if the client has as many as allowed.
    pub(crate) fn try_acquire(self: &Arc<Self>, ip: IpAddr) -> Option<ClientPermit> {
        let client = ClientNetwork::of(ip);
        let mut shard = self.shard(client)?;
        let count = shard.entry(client).or_default();
        if *count >= self.max {
            if *count == 0 {
                shard.remove(&client);
            }
            return None;
        }
        *count += 1;
        drop(shard);
        Some(ClientPermit { quota: Arc::clone(self), client })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let Some(mut shard) = self.quota.shard(self.client) else { return };
        if let Some(count) = shard.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_quota_whose_permits_are_released() {
        let quota = ClientQuota::new(2);
        let acquire = |ip: &str| quota.try_acquire(ip.parse().unwrap());
        let first = acquire("192.0.2.1").unwrap();
        let _second = acquire("::ffff:192.0.2.1").unwrap();
        assert!(acquire("192.0.2.1").is_none());
        let _other = acquire("192.0.2.2").unwrap();
        drop(first);
        assert!(acquire("192.0.2.1").is_some());
        let _six = [acquire("2001:db8::1"), acquire("2001:db8::2:1")].map(Option::unwrap);
        assert!(acquire("2001:db8::3").is_none() && acquire("2001:db8:0:1::1").is_some());
    }

    #[test]
    fn a_client_without_connections_leaves_no_entry() {
        let quota = ClientQuota::new(9);
        let all: Vec<_> =
            (0..200).map(|n| quota.try_acquire(IpAddr::from([10, 0, 0, n]))).collect();
        assert!(all.iter().all(Option::is_some));
        drop(all);
        assert!(quota.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
