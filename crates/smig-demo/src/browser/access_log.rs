//! Which connection carried which requests, from the access log of the browser's server.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::data::ConnectionRequests;
use super::direct::DOWNLOAD_PAGE_NAME;
use super::error::BrowserError;
use super::scenario::BIG_FILE_NAME;

/// A line of the log, in the JSON format of `smig serve` and `smig gateway`. nginx is configured to write
/// the same fields.
#[derive(Debug, Deserialize)]
struct Line {
    /// The client's address and port: they identify the connection.
    peer: String,
    path: String,
    protocol: String,
}

/// Returns the lines of a server's output; it may contain messages too.
fn lines(output: &str) -> impl Iterator<Item = Line> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn is_file(line: &Line, name: &str) -> bool {
    line.path.strip_prefix('/') == Some(name)
}

/// Returns whether a file was requested.
pub(super) fn has_request(output: &str, name: &str) -> bool {
    lines(output).any(|line| is_file(&line, name))
}

/// Counts the requests of each connection, in the order of the connections' addresses.
pub(super) fn requests_by_connection(output: &str) -> Vec<ConnectionRequests> {
    let mut by_peer = BTreeMap::new();
    for line in lines(output) {
        let is_download = is_file(&line, BIG_FILE_NAME);
        let is_page = !is_download && !is_file(&line, DOWNLOAD_PAGE_NAME);
        let counts = by_peer.entry(line.peer).or_insert_with(|| ConnectionRequests {
            protocol: line.protocol,
            page_requests: 0,
            downloads: 0,
        });
        counts.downloads += u64::from(is_download);
        counts.page_requests += u64::from(is_page);
    }
    by_peer.into_values().collect()
}

/// Checks that one HTTP/2 connection carried the download and `page_requests` others, and that there was no
/// other connection with requests.
pub(super) fn check_one_connection(
    connections: &[ConnectionRequests],
    page_requests: u64,
) -> Result<(), BrowserError> {
    let protocol = "HTTP/2.0".to_owned();
    let expected = ConnectionRequests { protocol, page_requests, downloads: 1 };
    if connections == [expected.clone()] {
        return Ok(());
    }
    let texts: Vec<_> = connections.iter().map(ToString::to_string).collect();
    Err(BrowserError::Connections(format!(
        "the server's access log has {}; expected one connection with {expected}",
        texts.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "smig: a message\n\
        {\"peer\":\"10.99.0.2:1\",\"path\":\"/\",\"protocol\":\"HTTP/2.0\",\"status\":200}\n\
        {\"peer\":\"10.99.0.2:1\",\"path\":\"/000.png\",\"protocol\":\"HTTP/2.0\"}\n\
        {\"peer\":\"10.99.0.2:1\",\"path\":\"/download.html\",\"protocol\":\"HTTP/2.0\"}\n\
        {\"peer\":\"10.99.0.2:1\",\"path\":\"/big.bin\",\"protocol\":\"HTTP/2.0\"}\n";

    #[test]
    fn page_and_download_must_share_a_connection() {
        let connections = requests_by_connection(LOG);
        check_one_connection(&connections, 2).unwrap();
        assert!(has_request(LOG, BIG_FILE_NAME) && !has_request(LOG, "001.png"));
        let error = check_one_connection(&connections, 3).unwrap_err().to_string();
        assert!(error.contains("2 requests of the page"), "{error}");
        let two = LOG.replace(":1\",\"path\":\"/big.bin", ":2\",\"path\":\"/big.bin");
        let error = check_one_connection(&requests_by_connection(&two), 2).unwrap_err().to_string();
        assert!(error.contains("0 downloads") && error.contains("1 download"), "{error}");
        let http1 = LOG.replace("HTTP/2.0", "HTTP/1.1");
        assert!(check_one_connection(&requests_by_connection(&http1), 2).is_err());
        assert!(check_one_connection(&[], 2).is_err());
    }
}
