//! Two hosts and the links between them.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use smig_link::{Link, LinkLog, LinkReport, LinkSpec, Time};

use super::child::Child;
use super::device::LinkEndpoint;
use super::error::{SetupContext, TestbedError};
use super::forward::{Captures, Forwarder, LinkDirection, now};
use super::host::Host;
use super::host_spec::HostSpec;
use super::pcap::Capture;
use super::spool::WriterResult;

/// Returns an address in a link's subnet, 10.99.N.0/24. The server is host 1, the client host 2.
const fn address(link: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, link as u8, host)
}

/// Maximum number of links: one subnet each.
const MAX_LINKS: usize = 256;

/// Receives the events of one direction; called on the thread that forwards
/// packets. Times are `CLOCK_MONOTONIC`.
pub type BoxedLog = Box<dyn LinkLog + Send>;

/// A server and a client joined by emulated links. When this is dropped, the
/// links stop and the hosts' devices are removed.
#[derive(Debug)]
pub struct Testbed {
    // Before the hosts, so that the links stop before the hosts are dropped.
    links: Vec<Forwarder>,
    server: Host,
    client: Host,
    capture_results: Vec<WriterResult>,
    origin: Time,
}

/// A link between the hosts, and the logs of its directions: [`TestbedBuilder`] sets those of the first link.
pub struct LinkSetup {
    spec: LinkSpec,
    to_client_log: BoxedLog,
    to_server_log: BoxedLog,
}

impl LinkSetup {
    /// Creates a link without logs.
    #[must_use]
    pub fn new(spec: LinkSpec) -> Self {
        Self { spec, to_client_log: Box::new(()), to_server_log: Box::new(()) }
    }
}

/// Packet capture at both ends of every link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSpec {
    /// Directory of the files: `link0-server.pcap`, `link0-client.pcap` and so on.
    pub directory: PathBuf,
    /// Maximum bytes captured of each packet, IP header included.
    pub snaplen: usize,
}

impl CaptureSpec {
    /// Captures complete packets.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), snaplen: 65_535 }
    }
}

/// Builds a [`Testbed`].
pub struct TestbedBuilder {
    links: Vec<LinkSetup>,
    server: HostSpec,
    client: HostSpec,
    capture: Option<CaptureSpec>,
    seed: u64,
    holds_back_outages: bool,
}

impl fmt::Debug for TestbedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<_> = self.links.iter().map(|link| &link.spec).collect();
        f.debug_struct("TestbedBuilder")
            .field("links", &links)
            .field("server", &self.server)
            .field("client", &self.client)
            .field("capture", &self.capture)
            .field("seed", &self.seed)
            .field("holds_back_outages", &self.holds_back_outages)
            .finish()
    }
}

impl fmt::Debug for LinkSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSetup").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl TestbedBuilder {
    /// Sets the server's TCP configuration.
    #[must_use]
    pub fn server(mut self, spec: HostSpec) -> Self {
        self.server = spec;
        self
    }

    /// Sets the client's TCP configuration.
    #[must_use]
    pub fn client(mut self, spec: HostSpec) -> Self {
        self.client = spec;
        self
    }

    /// Sets the log of packets from the server to the client on the first link.
    #[must_use]
    pub fn log_to_client(mut self, log: BoxedLog) -> Self {
        self.links[0].to_client_log = log;
        self
    }

    /// Sets the log of packets from the client to the server on the first link.
    #[must_use]
    pub fn log_to_server(mut self, log: BoxedLog) -> Self {
        self.links[0].to_server_log = log;
        self
    }

    /// Adds another link between the hosts.
    #[must_use]
    pub fn add_link(mut self, link: LinkSetup) -> Self {
        self.links.push(link);
        self
    }

    /// Captures the packets at both ends of every link to files.
    #[must_use]
    pub fn capture(mut self, capture: CaptureSpec) -> Self {
        self.capture = Some(capture);
        self
    }

    /// Sets the seed of all randomness on the links; the default is 1.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Lets no outage begin before [`Testbed::restart_clock`], for a run that starts some time after its hosts.
    #[must_use]
    pub const fn hold_back_outages(mut self) -> Self {
        self.holds_back_outages = true;
        self
    }

    /// Creates the hosts and starts the links.
    ///
    /// # Errors
    /// [`TestbedError::Missing`] when the machine lacks a requirement, with advice;
    /// [`TestbedError::Link`] when a link is invalid; otherwise the step that failed.
    pub fn start(self) -> Result<Testbed, TestbedError> {
        for link in &self.links {
            link.spec.check().map_err(TestbedError::Link)?;
        }
        if self.links.len() > MAX_LINKS {
            let cause = io::Error::other(format!("too many links: {}", self.links.len()));
            return Err(TestbedError::Setup { context: "cannot connect the hosts".into(), cause });
        }
        let server_spec =
            HostSpec { shared_address: Some(Testbed::SHARED_ADDRESS), ..self.server.clone() };
        let client_spec = HostSpec {
            peer_addresses: self.server.own_addresses(),
            peer_shared_address: Some(Testbed::SHARED_ADDRESS),
            ..self.client.clone()
        };
        let (server, server_tuns) = Host::create("server", self.endpoints(1), server_spec)?;
        let (client, client_tuns) = Host::create("client", self.endpoints(2), client_spec)?;
        let Self { links, capture, seed, holds_back_outages, .. } = self;
        let origin = now();
        let mut capture_results = Vec::new();
        let mut forwarders = Vec::new();
        let tuns = server_tuns.into_iter().zip(client_tuns);
        for (index, (setup, tuns)) in links.into_iter().zip(tuns).enumerate() {
            let captures = match &capture {
                Some(capture) => capture_link(capture, index, &mut capture_results)?,
                None => Captures::default(),
            };
            let max_packet = setup.spec.to_client.mtu.max(setup.spec.to_server.mtu) as usize;
            let mut directions =
                build_directions(setup, tuns, origin, |direction| seed_of(seed, index, direction))?;
            if holds_back_outages {
                directions.iter_mut().for_each(|direction| direction.link.hold_back_outages());
            }
            forwarders.push(Forwarder::start(directions, captures, max_packet)?);
        }
        Ok(Testbed { links: forwarders, server, client, capture_results, origin })
    }

    /// Returns the endpoints of all links at a host, 1 (server) or 2 (client).
    fn endpoints(&self, host: u8) -> Vec<LinkEndpoint> {
        let endpoint = |(link, setup): (usize, &LinkSetup)| {
            let outgoing = if host == 1 { &setup.spec.to_client } else { &setup.spec.to_server };
            LinkEndpoint {
                link_index: link,
                address: address(link, host),
                peer: address(link, 3 - host),
                mtu: outgoing.mtu,
            }
        };
        self.links.iter().enumerate().map(endpoint).collect()
    }
}

/// Direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToClient,
    ToServer,
}

/// Returns the seed of one direction of one link.
pub(crate) const fn seed_of(seed: u64, link: usize, direction: Direction) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(link as u64 * 2 + direction as u64)
}

fn build_directions(
    setup: LinkSetup,
    (server, client): (std::os::fd::OwnedFd, std::os::fd::OwnedFd),
    origin: Time,
    seed: impl Fn(Direction) -> u64,
) -> Result<[LinkDirection; 2], TestbedError> {
    let LinkSetup { spec, to_client_log: to_client, to_server_log: to_server } = setup;
    let (server, client) = (Arc::new(server), Arc::new(client));
    let mut down = Link::with_log(&spec.to_client, seed(Direction::ToClient), to_client)
        .map_err(TestbedError::Link)?;
    let mut up = Link::with_log(&spec.to_server, seed(Direction::ToServer), to_server)
        .map_err(TestbedError::Link)?;
    down.start_at(origin);
    up.start_at(origin);
    let (from, to) = (Arc::clone(&server), Arc::clone(&client));
    Ok([
        LinkDirection { source: from, destination: to, link: down },
        LinkDirection { source: client, destination: server, link: up },
    ])
}

fn capture_link(
    capture: &CaptureSpec,
    link: usize,
    capture_results: &mut Vec<WriterResult>,
) -> Result<Captures, TestbedError> {
    let mut create_capture = |host: &str| {
        let path = capture.directory.join(format!("link{link}-{host}.pcap"));
        let (capture, outcome) =
            Capture::create(&path, capture.snaplen).context(|| "cannot capture packets".into())?;
        capture_results.push(outcome);
        Ok(Some(capture))
    };
    Ok(Captures { server: create_capture("server")?, client: create_capture("client")? })
}

impl Testbed {
    /// The server's address that all links lead to. A client's socket takes the first link that is up, unless it is bound to the device
    /// of another one ([`Host::device_name_on`]).
    pub const SHARED_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);

    /// Starts two hosts with default settings, joined by `link`.
    ///
    /// # Errors
    /// As [`TestbedBuilder::start`].
    pub fn start(link: LinkSpec) -> Result<Self, TestbedError> {
        Self::builder(link).start()
    }

    /// Returns a builder for two hosts joined by `link`.
    #[must_use]
    pub fn builder(link: LinkSpec) -> TestbedBuilder {
        TestbedBuilder {
            links: vec![LinkSetup::new(link)],
            server: HostSpec::default(),
            client: HostSpec::default(),
            capture: None,
            seed: 1,
            holds_back_outages: false,
        }
    }

    /// Returns the host that sends `to_client` packets.
    #[must_use]
    pub const fn server(&self) -> &Host {
        &self.server
    }

    /// Returns the host that sends `to_server` packets.
    #[must_use]
    pub const fn client(&self) -> &Host {
        &self.client
    }

    /// Starts a program on the machine itself, outside of both hosts. As with [`Host::spawn`], it and
    /// its descendants are killed when the [`Child`] is dropped and when this process ends.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn_outside(&self, command: Command) -> io::Result<Child> {
        Child::spawn(None, command)
    }

    /// Returns the counters and the lateness of the first link.
    #[must_use]
    pub fn report(&self) -> LinkReport {
        self.links[0].report()
    }

    /// Returns the counters and the lateness of each link.
    #[must_use]
    pub fn reports(&self) -> Vec<LinkReport> {
        self.links.iter().map(Forwarder::report).collect()
    }

    /// Returns the number of packets dropped by the hosts' devices, outside the links: 0 in a valid run.
    ///
    /// # Errors
    /// As [`Host::device_drops`].
    pub fn device_drops(&self) -> io::Result<u64> {
        Ok(self.server.device_drops()? + self.client.device_drops()?)
    }

    /// Returns the origin of rates in steps, traces, outages and changing delays: the
    /// start, or the last [`restart_clock`](Self::restart_clock).
    #[must_use]
    pub const fn origin(&self) -> Time {
        self.origin
    }

    /// Restarts rates in steps, traces, outages and changing delays now, for a run that
    /// starts some time after its hosts.
    pub fn restart_clock(&mut self) {
        self.origin = now();
        self.links.iter().for_each(|link| link.restart_clock(self.origin));
    }

    /// Clears the lateness histogram, at the start of a measurement.
    pub fn reset_lateness(&self) {
        self.links.iter().for_each(Forwarder::reset_lateness);
    }

    /// Stops the links, closes the capture files and returns the links' reports.
    ///
    /// # Errors
    /// When a capture could not be written.
    pub fn finish(mut self) -> io::Result<Vec<LinkReport>> {
        self.links.iter_mut().for_each(Forwarder::stop);
        self.capture_results.iter().try_for_each(WriterResult::take)?;
        Ok(self.reports())
    }
}
