//! Counts connections per client address, so that one client cannot take all places.
//!
//! An IPv6 client is identified by its /64 network, since a client usually has all of it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

const SHARDS: usize = 16;

/// A client's IPv4 address or IPv6 /64 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum From {
    V4(u32),
    V6(u64),
}

impl From {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.to_bits()),
            IpAddr::V6(ip) => Self::V6((ip.to_bits() >> 64) as u64),
        }
    }

    const fn shard(self) -> usize {
        let bits = match self {
            Self::V4(bits) => bits as u64,
            Self::V6(bits) => bits,
        };
        ((bits ^ (bits >> 8) ^ (bits >> 32)) % SHARDS as u64) as usize
    }
}

/// The number of open connections per client.
#[derive(Debug)]
pub(crate) struct Crowd {
    most: usize,
    shards: [Mutex<FxHashMap<From, usize>>; SHARDS],
}

/// A connection's place in the count for its client; released when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    from: From,
}

impl Crowd {
    /// Creates a count with at most `most` connections per client.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, shards: Default::default() })
    }

    fn shard(&self, from: From) -> Option<MutexGuard<'_, FxHashMap<From, usize>>> {
        let shard = self.shards.get(from.shard())?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a place; `None` if the client has as many as allowed.
    pub(crate) fn seat(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let from = From::of(ip);
        let mut shard = self.shard(from)?;
        let count = shard.entry(from).or_default();
        if *count >= self.most {
            if *count == 0 {
                shard.remove(&from);
            }
            return None;
        }
        *count += 1;
        drop(shard);
        Some(Seat { crowd: Arc::clone(self), from })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(mut shard) = self.crowd.shard(self.from) else { return };
        if let Some(count) = shard.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let crowd = Crowd::new(2);
        let seat = |ip: &str| crowd.seat(ip.parse().unwrap());
        let first = seat("192.0.2.1").unwrap();
        let _second = seat("::ffff:192.0.2.1").unwrap();
        assert!(seat("192.0.2.1").is_none());
        let _other = seat("192.0.2.2").unwrap();
        drop(first);
        assert!(seat("192.0.2.1").is_some());
        let _six = [seat("2001:db8::1"), seat("2001:db8::2:1")].map(Option::unwrap);
        assert!(seat("2001:db8::3").is_none() && seat("2001:db8:0:1::1").is_some());
    }

    #[test]
    fn nothing_is_kept_of_who_has_gone() {
        let crowd = Crowd::new(9);
        let all: Vec<_> = (0..200).map(|n| crowd.seat(IpAddr::from([10, 0, 0, n]))).collect();
        assert!(all.iter().all(Option::is_some));
        drop(all);
        assert!(crowd.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
