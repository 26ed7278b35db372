//! The browser's own log of its sockets (NetLog): the addresses of the connections that DevTools numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::network_log::NetworkRequest;

/// The browser writes its log in batches: how long the last one is awaited.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// As much of a log is read: that of a page with ten thousand resources has a tenth.
const MAX_LOG_BYTES: u64 = 256 << 20;

/// An event of the log.
#[derive(Deserialize)]
struct LogEvent {
    source: LogSource,
    #[serde(default)]
    params: Option<LogParams>,
}

#[derive(Deserialize)]
struct LogSource {
    id: u64,
}

#[derive(Deserialize)]
struct LogParams {
    local_address: Option<String>,
}

/// Returns the client's end of each connection, by the URL of the response that came by it. Waits up to a second until the log has all of
/// them; what it lacks then is left out.
#[must_use]
pub fn local_addresses(
    requests: &[NetworkRequest],
    socket_log: &Path,
) -> BTreeMap<String, SocketAddr> {
    // A response out of a cache has no connection.
    let connection_of = |request: &NetworkRequest| {
        let connection = request.response.as_ref()?.connection;
        (connection > 0).then(|| (request.url.clone(), connection))
    };
    let connections: Vec<(String, u64)> = requests.iter().filter_map(connection_of).collect();
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let addresses = read_addresses(socket_log);
        let is_known = |(_, id): &(String, u64)| addresses.contains_key(id);
        if connections.iter().all(is_known) || Instant::now() >= deadline {
            let known = connections.into_iter();
            return known.filter_map(|(url, id)| Some((url, *addresses.get(&id)?))).collect();
        }
        sleep(LOG_POLL_INTERVAL);
    }
}

/// Returns the local addresses of the log's sockets. It is an array with an event on each line, whose last one may be incomplete.
fn read_addresses(socket_log: &Path) -> BTreeMap<u64, SocketAddr> {
    let mut addresses = BTreeMap::new();
    let Ok(file) = File::open(socket_log) else { return addresses };
    let mut reader = BufReader::new(file.take(MAX_LOG_BYTES));
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        addresses.extend(local_address(&line));
        line.clear();
    }
    addresses
}

fn local_address(line: &[u8]) -> Option<(u64, SocketAddr)> {
    let line = line.trim_ascii();
    let line = line.strip_suffix(b",").unwrap_or(line);
    let event: LogEvent = serde_json::from_slice(line).ok()?;
    let address = event.params?.local_address?.parse().ok()?;
    Some((event.source.id, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network_log::NetworkResponse;

    fn request(url: &str, connection: u64) -> NetworkRequest {
        let response = NetworkResponse { connection, ..NetworkResponse::default() };
        let url = url.to_owned();
        NetworkRequest { url, response: Some(response), ..NetworkRequest::default() }
    }

    #[test]
    fn responses_are_joined_with_the_sockets_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("net-log.json");
        let text = "{\"constants\":{},\n\"events\": [\n\
            {\"params\":{\"address_list\":[\"10.99.0.1:443\"]},\"phase\":1,\"source\":{\"id\":7,\"type\":8},\"time\":\"1\",\"type\":2},\n\
            {\"params\":{\"local_address\":\"10.99.0.2:5000\",\"remote_address\":\"10.99.0.1:443\"},\"phase\":2,\"source\":{\"id\":7,\"type\":8},\"time\":\"2\",\"type\":2},\n\
            {\"params\":{\"local_address\":\"10.99.0.2:5001\"},\"phase\":2,\"source\":{\"id\":9,\"type\":8},\"time\":\"2\",\"type\":2},\n\
            {\"params\":{\"local_addr";
        std::fs::write(&log, text).unwrap();
        let requests = [
            request("https://10.99.0.1/", 7),
            request("https://10.99.0.1/0.png", 9),
            // From the cache.
            request("data:,", 0),
        ];
        let addresses = local_addresses(&requests, &log);
        let expected = [("https://10.99.0.1/", 5_000), ("https://10.99.0.1/0.png", 5_001)];
        let found: Vec<_> =
            addresses.iter().map(|(url, address)| (url.as_str(), address.port())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn without_a_log_no_address_is_known() {
        assert!(local_addresses(&[], Path::new("no/such/log")).is_empty());
        let requests = [request("https://10.99.0.1/", 7)];
        assert!(local_addresses(&requests, Path::new("no/such/log")).is_empty());
    }
}
