//! Load balancing: the choice of a server for a request.

use std::net::SocketAddr;

use http::{HeaderMap, Uri};

use super::UpstreamServer;
use super::spec::{Balance, HashKey};

/// The set of servers that were already tried, by index. Those beyond the 64th may be tried twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TriedServers(u64);

impl TriedServers {
    pub(crate) const fn insert(&mut self, server: usize) {
        self.0 |= 1_u64.unbounded_shl(server as u32);
    }

    const fn contains(self, server: usize) -> bool {
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
    fn key_hash(&self, hash_key: &HashKey) -> Option<u64> {
        Some(match hash_key {
            HashKey::Client => match self.client {
                SocketAddr::V4(addr) => hash(&addr.ip().octets()),
                SocketAddr::V6(addr) => hash(&addr.ip().octets()),
            },
            HashKey::Path => hash(self.uri.path_and_query()?.as_str().as_bytes()),
            HashKey::Header(name) => hash(self.headers.get(name)?.as_bytes()),
        })
    }
}

/// Picks a server that was not yet tried: a healthy one, or any if no healthy one is left.
pub(super) fn choose(
    servers: &[UpstreamServer],
    balance: &Balance,
    input: BalanceInput<'_>,
    tried_servers: TriedServers,
    rotation: usize,
) -> Option<usize> {
    if servers.len() == 1 {
        return (!tried_servers.contains(0)).then_some(0);
    }
    let key_hash = match balance {
        Balance::LeastRequest => None,
        Balance::Hash(hash_key) => input.key_hash(hash_key),
    };
    let pick = |healthy_only: bool| {
        let all = servers.iter().enumerate();
        let candidates = all.filter(|&(n, server)| {
            !tried_servers.contains(n) && (!healthy_only || server.is_healthy())
        });
        match key_hash {
            // Rendezvous hashing: the server whose hash, mixed with the key, is highest. When a server is lost,
            // only its keys move.
            Some(key_hash) => candidates.max_by_key(|(_, server)| mix(key_hash ^ server.hash)),
            // Start at a different server each time, so that ties are distributed.
            None => candidates.min_by_key(|&(n, server)| {
                (server.load(), (n + servers.len() - rotation % servers.len()) % servers.len())
            }),
        }
        .map(|(n, _)| n)
    };
    pick(true).or_else(|| pick(false))
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

    fn choose_for_path(servers: &[UpstreamServer], path: &str) -> usize {
        let (uri, headers) = (path.parse().unwrap(), HeaderMap::new());
        let client = "192.0.2.1:1".parse().unwrap();
        let input = BalanceInput { client, uri: &uri, headers: &headers };
        let balance = Balance::Hash(HashKey::Path);
        choose(servers, &balance, input, TriedServers::default(), 0).unwrap()
    }

    #[test]
    fn keys_are_distributed_and_keep_their_server_when_another_one_is_lost() {
        let servers = servers(4);
        let choices_before: Vec<_> =
            (0..4000).map(|n| choose_for_path(&servers, &format!("/{n}"))).collect();
        for server in 0..4 {
            let share = choices_before.iter().filter(|&&chosen| chosen == server).count();
            assert!((800..1200).contains(&share), "{server}: {share}");
        }
        servers[2].on_failure();
        for (n, &chosen) in choices_before.iter().enumerate() {
            let chosen_now = choose_for_path(&servers, &format!("/{n}"));
            assert!(chosen_now != 2 && (chosen == 2 || chosen_now == chosen));
        }
    }

    #[test]
    fn the_least_loaded_server_is_chosen_and_ties_are_distributed() {
        let servers = servers(3);
        let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
        let client = "192.0.2.1:1".parse().unwrap();
        let input = BalanceInput { client, uri: &uri, headers: &headers };
        let choose_least_loaded =
            |tried, turn| choose(&servers, &Balance::LeastRequest, input, tried, turn);
        assert_eq!(
            (0..3)
                .map(|n| choose_least_loaded(TriedServers::default(), n).unwrap())
                .collect::<Vec<_>>(),
            [0, 1, 2]
        );
        servers[0].begin();
        servers[1].begin();
        assert_eq!(choose_least_loaded(TriedServers::default(), 0), Some(2));
        let mut tried_servers = TriedServers::default();
        tried_servers.insert(2);
        assert_eq!(choose_least_loaded(tried_servers, 0), Some(0));
        // None is healthy: all are tried.
        servers.iter().for_each(|server| server.on_failure());
        assert_eq!(choose_least_loaded(tried_servers, 0), Some(0));
        tried_servers.insert(0);
        tried_servers.insert(1);
        assert_eq!(choose_least_loaded(tried_servers, 0), None);
    }
}
