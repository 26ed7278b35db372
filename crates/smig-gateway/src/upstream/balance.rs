//! Load balancing: the choice of a server for a request.

use std::net::SocketAddr;

use http::{HeaderMap, Uri};

use super::UpstreamServer;
use super::spec::{Balance, HashKey};

/// The set of servers that were already tried, by index. Those beyond the 64th may be tried twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TriedServers(u64);

impl TriedServers {
    pub(crate) const fn add(&mut self, server: usize) {
        self.0 |= 1_u64.unbounded_shl(server as u32);
    }

    const fn has(self, server: usize) -> bool {
        self.0 & 1_u64.unbounded_shl(server as u32) != 0
    }
}

/// The properties of a request that the balancer uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BalanceInput<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
}

impl BalanceInput<'_> {
    fn key(&self, by: &HashKey) -> Option<u64> {
        Some(match by {
            HashKey::Client => match self.client {
                SocketAddr::V4(addr) => hash(&addr.ip().octets()),
                SocketAddr::V6(addr) => hash(&addr.ip().octets()),
            },
            HashKey::Path => hash(self.uri.path_and_query()?.as_str().as_bytes()),
            HashKey::Header(name) => hash(self.headers.get(name)?.as_bytes()),
        })
    }
}

/// Picks a server that was not yet tried: a healthy one, or any if none is healthy.
pub(super) fn choose(
    servers: &[UpstreamServer],
    balance: &Balance,
    asked: BalanceInput<'_>,
    tried: TriedServers,
    turn: usize,
) -> Option<usize> {
    if servers.len() == 1 {
        return (!tried.has(0)).then_some(0);
    }
    let key = match balance {
        Balance::LeastRequest => None,
        Balance::Hash(by) => asked.key(by),
    };
    let among = |well: bool| {
        let all = servers.iter().enumerate();
        let left = all.filter(|&(n, server)| !tried.has(n) && (!well || server.is_healthy()));
        match key {
            // Rendezvous hashing: the server whose hash, mixed with the key, is highest. When a server is lost,
            // only its keys move.
            Some(key) => left.max_by_key(|(_, server)| mix(key ^ server.hash)),
            // Start at a different server each time, so that ties are distributed.
            None => left.min_by_key(|&(n, server)| {
                (server.load(), (n + servers.len() - turn % servers.len()) % servers.len())
            }),
        }
        .map(|(n, _)| n)
    };
    among(true).or_else(|| among(false))
}

/// FNV-1a, mixed.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv)
}

/// The finalizer of splitmix64: each output bit depends on each input bit.
const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{Ejection, ServerUrl};

    fn servers(n: usize) -> Vec<UpstreamServer> {
        (0..n)
            .map(|n| {
                let url: ServerUrl = format!("http://10.0.0.{n}:80").parse().unwrap();
                UpstreamServer::new(
                    url,
                    8,
                    8,
                    Ejection { consecutive_failures: 1, ..Ejection::default() },
                )
            })
            .collect()
    }

    fn of_path(servers: &[UpstreamServer], path: &str) -> usize {
        let (uri, headers) = (path.parse().unwrap(), HeaderMap::new());
        let client = "192.0.2.1:1".parse().unwrap();
        let asked = BalanceInput { client, uri: &uri, headers: &headers };
        let balance = Balance::Hash(HashKey::Path);
        choose(servers, &balance, asked, TriedServers::default(), 0).unwrap()
    }

    #[test]
    fn keys_are_spread_and_stay_when_another_server_is_lost() {
        let servers = servers(4);
        let before: Vec<_> = (0..4000).map(|n| of_path(&servers, &format!("/{n}"))).collect();
        for server in 0..4 {
            let share = before.iter().filter(|&&chosen| chosen == server).count();
            assert!((800..1200).contains(&share), "{server}: {share}");
        }
        servers[2].on_failure();
        for (n, &chosen) in before.iter().enumerate() {
            let now = of_path(&servers, &format!("/{n}"));
            assert!(now != 2 && (chosen == 2 || now == chosen));
        }
    }

    #[test]
    fn the_least_loaded_is_chosen_and_ties_are_spread() {
        let servers = servers(3);
        let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
        let client = "192.0.2.1:1".parse().unwrap();
        let asked = BalanceInput { client, uri: &uri, headers: &headers };
        let least = |tried, turn| choose(&servers, &Balance::LeastRequest, asked, tried, turn);
        assert_eq!(
            (0..3).map(|n| least(TriedServers::default(), n).unwrap()).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        servers[0].begin();
        servers[1].begin();
        assert_eq!(least(TriedServers::default(), 0), Some(2));
        let mut tried = TriedServers::default();
        tried.add(2);
        assert_eq!(least(tried, 0), Some(0));
        // None is healthy: all are tried.
        servers.iter().for_each(|server| server.on_failure());
        assert_eq!(least(tried, 0), Some(0));
        tried.add(0);
        tried.add(1);
        assert_eq!(least(tried, 0), None);
    }
}
