//! Two hosts and the link between them.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::error::LabError;
use super::forward::{Direction, Forwarder};
use super::host::{Host, HostSpec};
use crate::link::{DirectionSpec, Link, LinkLog, LinkReport, LinkSpec};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Takes the log of one direction; called on the thread that carries packets.
/// Its times are `CLOCK_MONOTONIC`.
pub type BoxedLog = Box<dyn LinkLog + Send>;

/// A server and a client joined by an emulated link. The link stops, and the
/// hosts lose their devices, when this is dropped.
#[derive(Debug)]
pub struct Testbed {
    // Before the hosts, so that nothing moves while they go.
    forwarder: Forwarder,
    server: Host,
    client: Host,
}

/// Sets up a [`Testbed`].
pub struct Builder {
    link: LinkSpec,
    server: HostSpec,
    client: HostSpec,
    to_client: BoxedLog,
    to_server: BoxedLog,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("link", &self.link)
            .field("server", &self.server)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// How the server's TCP is set up.
    #[must_use]
    pub fn server(mut self, spec: HostSpec) -> Self {
        self.server = spec;
        self
    }

    /// How the client's TCP is set up.
    #[must_use]
    pub fn client(mut self, spec: HostSpec) -> Self {
        self.client = spec;
        self
    }

    /// Who hears of every packet from the server to the client.
    #[must_use]
    pub fn log_to_client(mut self, log: BoxedLog) -> Self {
        self.to_client = log;
        self
    }

    /// Who hears of every packet from the client to the server.
    #[must_use]
    pub fn log_to_server(mut self, log: BoxedLog) -> Self {
        self.to_server = log;
        self
    }

    /// Makes the hosts and starts the link.
    ///
    /// # Errors
    /// [`LabError::Missing`] when the machine lacks what this needs, with what
    /// to do; otherwise the step that failed.
    pub fn start(self) -> Result<Testbed, LabError> {
        let (server, server_device) = Host::make("server", SERVER, CLIENT, self.server)?;
        let (client, client_device) = Host::make("client", CLIENT, SERVER, self.client)?;
        let (server_device, client_device) = (Arc::new(server_device), Arc::new(client_device));
        let direction = |from: &Arc<_>, to: &Arc<_>, spec: DirectionSpec, log| Direction {
            from: Arc::clone(from),
            to: Arc::clone(to),
            link: Link::with_log(spec, log),
        };
        let forwarder = Forwarder::start([
            direction(&server_device, &client_device, self.link.to_client, self.to_client),
            direction(&client_device, &server_device, self.link.to_server, self.to_server),
        ])?;
        Ok(Testbed { forwarder, server, client })
    }
}

impl Testbed {
    /// Two hosts with Linux's own settings, joined by `link`.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start(link: LinkSpec) -> Result<Self, LabError> {
        Self::builder(link).start()
    }

    /// Two hosts joined by `link`, with settings of their own.
    #[must_use]
    pub fn builder(link: LinkSpec) -> Builder {
        Builder {
            link,
            server: HostSpec::default(),
            client: HostSpec::default(),
            to_client: Box::new(()),
            to_server: Box::new(()),
        }
    }

    /// The host that `to_client` packets come from.
    #[must_use]
    pub const fn server(&self) -> &Host {
        &self.server
    }

    /// The host that `to_server` packets come from.
    #[must_use]
    pub const fn client(&self) -> &Host {
        &self.client
    }

    /// What the link did so far, and how punctually.
    #[must_use]
    pub fn report(&self) -> LinkReport {
        self.forwarder.report()
    }

    /// Packets lost in the hosts' devices, outside the link: 0 in a good run.
    ///
    /// # Errors
    /// As [`Host::device_drops`].
    pub fn device_drops(&self) -> io::Result<u64> {
        Ok(self.server.device_drops()? + self.client.device_drops()?)
    }
}
