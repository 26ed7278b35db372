//! Servers by host: the congestion control of each, and whether HTTPX turns HTTP/2 off for it.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

/// Name of the server of the document's host, and of all that have no other.
const MAIN: &str = "main";
/// What is added to the name of a server without HTTP/2.
const WITHOUT_HTTP2: &str = "-http1";

/// Which hosts of a page differ from the document's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlan {
    /// Congestion control of the servers of hosts, besides the document's.
    pub controls: BTreeMap<String, String>,
    /// Hosts, besides the document's, for which HTTPX turns HTTP/2 off.
    pub without_http2: BTreeSet<String>,
    /// Whether it does for the document's host.
    pub document_without_http2: bool,
}

impl HostPlan {
    /// Returns the servers: one for each congestion control, and the same without HTTP/2.
    pub(super) fn servers(&self, kind: &str, is_httpx: bool) -> Table {
        let mut servers = Table::new();
        let controls = self.controls.values().map(|control| Some(control.as_str()));
        for control in std::iter::once(None).chain(controls) {
            let mut server = Table::from_iter([("kind".to_owned(), Value::from(kind))]);
            if let Some(control) = control {
                server.insert("congestion_control".into(), control.into());
            }
            let name = control.map_or_else(|| MAIN.to_owned(), server_name);
            if is_httpx {
                let mut without = server.clone();
                without.insert("http2".into(), false.into());
                servers.insert(format!("{name}{WITHOUT_HTTP2}"), Value::Table(without));
            }
            servers.insert(name, Value::Table(server));
        }
        servers
    }

    /// Returns the server of the document.
    pub(super) fn document_server(&self, is_httpx: bool) -> String {
        with_version(MAIN.to_owned(), is_httpx && self.document_without_http2)
    }

    /// Returns the servers of other hosts, as the page's key `hosts` has them.
    pub(super) fn page_hosts(&self, is_httpx: bool) -> Table {
        let hosts: BTreeSet<_> = self.controls.keys().chain(&self.without_http2).collect();
        let server_of = |host: &String| {
            let name =
                self.controls.get(host).map_or_else(|| MAIN.to_owned(), |name| server_name(name));
            let name = with_version(name, is_httpx && self.without_http2.contains(host));
            Value::Table(Table::from_iter([("server".to_owned(), Value::from(name))]))
        };
        hosts.into_iter().map(|host| (host.clone(), server_of(host))).collect()
    }
}

fn server_name(control: &str) -> String {
    format!("by-{control}")
}

fn with_version(name: String, is_without_http2: bool) -> String {
    if is_without_http2 { name + WITHOUT_HTTP2 } else { name }
}
