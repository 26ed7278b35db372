//! The clients of one load of a page: one for each host, as a browser has connections of their own to each.
//!
//! Hosts with the same address and certificate could share connections (RFC 9113 section 9.1.1), and browsers let some: that is not done here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::client::WorkloadClient;
use super::connections::ConnectionKey;
use super::open::new_client;
use super::run::WorkloadSpec;
use crate::scenario::{Page, Resource};

/// The clients of a load.
#[derive(Debug)]
pub(super) struct PageClients {
    /// That of the document's host.
    document: Arc<WorkloadClient>,
    /// By the names of the other hosts.
    hosts: BTreeMap<String, Arc<WorkloadClient>>,
}

impl PageClients {
    /// Creates clients without connections.
    pub(super) fn new(
        workload_spec: &WorkloadSpec,
        page: &Page,
        client_name: &str,
        sessions: &AtomicU32,
    ) -> Result<Self, String> {
        let client = |server: Option<&str>| {
            new_client(workload_spec, client_name, server, sessions).map(Arc::new)
        };
        let host = |name: String| {
            let client = client(page.server_of_host(&name))?;
            Ok::<_, String>((name, client))
        };
        Ok(Self {
            document: client(None)?,
            hosts: page.host_names().into_iter().map(host).collect::<Result<_, _>>()?,
        })
    }

    /// Returns those of a warm page: a client whose connections are open.
    pub(super) const fn open(client: Arc<WorkloadClient>) -> Self {
        Self { document: client, hosts: BTreeMap::new() }
    }

    /// Returns the client of a resource's host.
    pub(super) fn of(&self, resource: &Resource) -> &WorkloadClient {
        let host = resource.host.as_ref().and_then(|host| self.hosts.get(host));
        host.unwrap_or(&self.document)
    }

    /// Waits until all can send requests.
    pub(super) async fn ready(&self) -> Result<(), String> {
        for client in self.all() {
            client.ready().await?;
        }
        Ok(())
    }

    /// Returns the local address of a connection, if it is one of theirs.
    pub(super) fn address(&self, connection: ConnectionKey) -> Option<SocketAddr> {
        self.all().find_map(|client| client.address(connection))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<WorkloadClient>> {
        std::iter::once(&self.document).chain(self.hosts.values())
    }
}
