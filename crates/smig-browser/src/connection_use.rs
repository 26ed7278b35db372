//! Which TCP connection each response came by: DevTools number connections, and the browser's own log of its sockets (NetLog) has
//! their addresses.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::devtools::{DevTools, DevToolsEvent};
use crate::error::BrowserError;
use crate::tab::Tab;

/// The browser writes its log in batches: how long the last one is awaited.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// As much of a log is read: that of a page with ten thousand resources has a tenth.
const MAX_LOG_BYTES: u64 = 256 << 20;

/// The connections of a load's responses.
#[derive(Debug, Default)]
pub struct ConnectionUse {
    /// By URL: the connection's number in the browser.
    ids: BTreeMap<String, u64>,
}

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

impl ConnectionUse {
    /// Lets a tab report the connections of its responses, from now on.
    ///
    /// # Errors
    /// Those of [`DevTools::call`].
    pub fn enable<W: Write>(devtools: &mut DevTools<W>, tab: &Tab) -> Result<(), BrowserError> {
        devtools.call(tab.session_id(), "Network.enable", json!({}))?;
        Ok(())
    }

    /// Notes the connection of a response, if the event is one.
    pub fn observe(&mut self, tab: &Tab, event: &DevToolsEvent) {
        if event.session_id != tab.session_id() || event.method != "Network.responseReceived" {
            return;
        }
        let response = &event.params["response"];
        if let (Some(url), Some(id)) = (response["url"].as_str(), connection_id(response)) {
            self.ids.insert(url.to_owned(), id);
        }
    }

    /// Returns the client's end of each connection, by the URL of the response that came by it. Waits up to a second until the log has
    /// all of them; what it lacks then is left out.
    #[must_use]
    pub fn local_addresses(&self, net_log: &Path) -> BTreeMap<String, SocketAddr> {
        let deadline = Instant::now() + LOG_TIMEOUT;
        loop {
            let addresses = read_addresses(net_log);
            let is_known = |id: &u64| addresses.contains_key(id);
            if self.ids.values().all(is_known) || Instant::now() >= deadline {
                let known = self.ids.iter().filter_map(|(url, id)| Some((url, addresses.get(id)?)));
                return known.map(|(url, address)| (url.clone(), *address)).collect();
            }
            sleep(LOG_POLL_INTERVAL);
        }
    }
}

/// DevTools' numbers are JSON numbers with a fraction.
fn connection_id(response: &Value) -> Option<u64> {
    let id = response["connectionId"].as_f64()?;
    (id > 0.0).then_some(id as u64)
}

/// Returns the local addresses of the log's sockets. It is an array with an event on each line, whose last one may be incomplete.
fn read_addresses(net_log: &Path) -> BTreeMap<u64, SocketAddr> {
    let mut addresses = BTreeMap::new();
    let Ok(file) = File::open(net_log) else { return addresses };
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

    fn response(url: &str, id: f64) -> DevToolsEvent {
        DevToolsEvent {
            method: "Network.responseReceived".into(),
            params: json!({"response": {"url": url, "connectionId": id}}),
            session_id: "S".into(),
        }
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
        let tab = Tab::with_session("S");
        let mut connections = ConnectionUse::default();
        connections.observe(&tab, &response("https://10.99.0.1/", 7.0));
        connections.observe(&tab, &response("https://10.99.0.1/0.png", 9.0));
        // From the cache, and of another tab.
        connections.observe(&tab, &response("data:,", 0.0));
        connections.observe(&Tab::with_session("T"), &response("https://10.99.0.1/1.png", 7.0));
        let addresses = connections.local_addresses(&log);
        let expected = [("https://10.99.0.1/", 5_000), ("https://10.99.0.1/0.png", 5_001)];
        let found: Vec<_> =
            addresses.iter().map(|(url, address)| (url.as_str(), address.port())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn without_a_log_no_address_is_known() {
        let mut connections = ConnectionUse::default();
        assert!(connections.local_addresses(Path::new("no/such/log")).is_empty());
        connections.observe(&Tab::with_session("S"), &response("https://10.99.0.1/", 7.0));
        assert!(connections.local_addresses(Path::new("no/such/log")).is_empty());
    }
}
