//! One transfer through the narrow link, from a sender on this machine.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use smig_link::{LinkEvent, LinkEventKind, LinkLog, Time};
use smig_testbed::bpf::{BpfControl, BpfError, BpfGuard};
use smig_testbed::hystart::{HystartError, HystartGuard};
use smig_testbed::netns::{HostSpec, Testbed, TestbedError};
use thiserror::Error;

use super::sender::Sender;
use super::spec::ProbeSpec;
use super::trace::{QueuePoint, QueueTrace, WindowPoint};
use crate::recording::{HostSide, TcpSampler};
use crate::workload::Content;

/// Igor's limit of a transfer.
pub const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
const CHUNK_BYTES: usize = 64 << 10;
/// As often as the paper samples the window.
const WINDOW_PERIOD: Duration = Duration::from_millis(4);

/// Why a probe has no result.
#[derive(Debug, Error)]
pub enum IdentifyError {
    /// HyStart cannot be set.
    #[error(transparent)]
    Hystart(#[from] HystartError),
    /// The congestion control cannot be registered.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The link cannot be set up.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The transfer failed.
    #[error("the transfer of {bytes} bytes from {sender}: {cause}")]
    Transfer {
        /// Size of the object.
        bytes: u64,
        /// Who sent it.
        sender: Sender,
        /// Why.
        cause: io::Error,
    },
}

impl IdentifyError {
    /// Returns whether this machine cannot have the sender.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Hystart(_) | Self::Bpf(_) | Self::Testbed(TestbedError::CongestionControl { .. })
        )
    }
}

/// Every event of the link to the client.
#[derive(Debug, Clone, Default)]
struct EventLog(Arc<Mutex<Vec<LinkEvent>>>);

impl LinkLog for EventLog {
    fn record(&mut self, event: LinkEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// Fetches an object from a sender over the link of `spec`. `keeper` returns a command without its last argument that calls, for
/// `hystart`, [`smig_testbed::hystart::run_keeper`], and for `bpf`, [`smig_testbed::bpf::run_keeper`]: both are the machine's, and
/// what was there is restored.
/// [`smig_testbed::netns::enter_user_namespace`] must have been called.
///
/// # Errors
/// [`IdentifyError`]. A transfer that takes longer than a minute has failed. Nothing is left behind.
pub fn probe(
    spec: &ProbeSpec,
    sender: &Sender,
    keeper: impl Fn(&str) -> Command,
) -> Result<QueueTrace, IdentifyError> {
    let (name, _guards) = prepare(sender, &keeper)?;
    let log = EventLog::default();
    let testbed = Testbed::builder(spec.link())
        .server(HostSpec::default().congestion_control(name))
        .client(HostSpec::default().sysctl("ipv4/tcp_sack", if spec.sack { "1" } else { "0" }))
        .log_to_client(Box::new(log.clone()))
        .start()?;
    let failed =
        |cause| IdentifyError::Transfer { bytes: spec.object_bytes, sender: sender.clone(), cause };
    let sampler = TcpSampler::start(testbed.server(), "server", HostSide::Server, WINDOW_PERIOD);
    let sampler = sampler.map_err(failed)?;
    let received_bytes = transfer(&testbed, spec.object_bytes).map_err(failed)?;
    let samples = sampler.stop().map_err(failed)?;
    drop(testbed);
    let (actual, windows) = samples.main_sender().unwrap_or_default();
    if actual != name {
        let what = format!("the connection's congestion control was {actual:?}");
        return Err(failed(io::Error::other(what)));
    }
    let events = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(queue_trace(&events, &windows, spec.mtu, received_bytes))
}

/// What a sender needs of the machine.
type Guards = (Option<HystartGuard>, Option<BpfGuard>);

/// Prepares the machine for a sender; returns the name of its congestion control here. CUBIC without HyStart is a program of its own
/// where that is possible, so that the machine's setting is left alone.
fn prepare<'a>(
    sender: &'a Sender,
    keeper: &impl Fn(&str) -> Command,
) -> Result<(&'a str, Guards), IdentifyError> {
    if sender.hystart() == Some(false) {
        let control = BpfControl::CubicWithoutHystart;
        if let Ok(guard) = BpfGuard::start(keeper("bpf"), control) {
            return Ok((control.as_str(), (None, Some(guard))));
        }
    }
    let name = sender.congestion_control();
    let hystart =
        sender.hystart().map(|on| HystartGuard::start(keeper("hystart"), on)).transpose()?;
    let bpf = BpfControl::needed_for(name)
        .map(|control| BpfGuard::start(keeper("bpf"), control))
        .transpose()?;
    Ok((name, (hystart, bpf)))
}

/// Sends the object to the client; returns the bytes that arrived as they were sent.
fn transfer(testbed: &Testbed, bytes: u64) -> io::Result<u64> {
    let (port_sender, port_receiver) = mpsc::channel();
    let server = testbed.server().run(move || -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        port_sender.send(listener.local_addr()?.port()).map_err(io::Error::other)?;
        let mut stream = listener.accept()?.0;
        stream.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
        let (mut content, mut chunk) = (Content::new(), [0; CHUNK_BYTES]);
        let mut left = bytes;
        while left > 0 {
            let length = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            content.fill(&mut chunk[..length]);
            stream.write_all(&chunk[..length])?;
            left -= length as u64;
        }
        stream.shutdown(Shutdown::Write)?;
        // Until the client has read all, and closes.
        stream.set_read_timeout(Some(TRANSFER_TIMEOUT))?;
        stream.read(&mut [0; 1]).map(drop)
    })?;
    let port = port_receiver.recv().map_err(|_| io::Error::other("the server did not start"))?;
    let address = SocketAddr::new(IpAddr::V4(testbed.server().address()), port);
    let client = testbed.client().run(move || receive(address))?;
    let panicked = |_| io::Error::other("a thread of the transfer panicked");
    let received = client.join().map_err(panicked)??;
    server.join().map_err(panicked)??;
    Ok(received)
}

fn receive(address: SocketAddr) -> io::Result<u64> {
    let deadline = Instant::now() + TRANSFER_TIMEOUT;
    let mut stream = TcpStream::connect_timeout(&address, TRANSFER_TIMEOUT)?;
    let mut received = 0;
    let (mut content, mut chunk) = (Content::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(received);
        }
        if !content.verify_next(&chunk[..length]) {
            let what = format!("wrong bytes after {received}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        received += length as u64;
    }
}

fn queue_trace(
    events: &[LinkEvent],
    windows: &[(Time, u32)],
    mtu: u32,
    received_bytes: u64,
) -> QueueTrace {
    let is_full_packet = |event: &&LinkEvent| event.bytes == u64::from(mtu);
    let first = events.iter().find(is_full_packet).or_else(|| events.first());
    let start = first.map_or(Time::ZERO, |event| event.at);
    let seconds = |at: Time| at.since(start).as_secs_f64();
    let events = events.iter().filter(|event| event.at >= start);
    let (mut queue, mut drops_s) = (Vec::new(), Vec::new());
    for event in events {
        match event.kind {
            LinkEventKind::Drop(_) => drops_s.push(seconds(event.at)),
            LinkEventKind::Enqueue | LinkEventKind::Dequeue => {
                let packets = u32::try_from(event.queue_packets).unwrap_or(u32::MAX);
                queue.push(QueuePoint { at_s: seconds(event.at), packets });
            }
        }
    }
    let windows = windows.iter().filter(|(at, _)| *at >= start);
    let windows = windows
        .map(|(at, segments)| WindowPoint { at_s: seconds(*at), segments: *segments })
        .collect();
    QueueTrace { queue, drops_s, windows, received_bytes }
}

#[cfg(test)]
mod tests {
    use smig_link::{DropReason, Ports};

    use super::*;

    #[test]
    fn time_begins_with_the_first_full_packet() {
        let event = |millis: u64, kind, bytes, queue_packets| LinkEvent {
            at: Time::from_nanos(millis * 1_000_000),
            kind,
            bytes,
            ports: Ports::default(),
            queue_packets,
            queue_bytes: 0,
        };
        let events = [
            event(1_000, LinkEventKind::Enqueue, 60, 1),
            event(1_100, LinkEventKind::Enqueue, 500, 1),
            event(1_100, LinkEventKind::Enqueue, 500, 2),
            event(1_110, LinkEventKind::Dequeue, 500, 1),
            event(1_600, LinkEventKind::Drop(DropReason::Full), 500, 1),
        ];
        let windows = [(Time::from_nanos(0), 10), (Time::from_nanos(1_350_000_000), 20)];
        let trace = queue_trace(&events, &windows, 500, 7);
        let points: Vec<_> = trace.queue.iter().map(|point| (point.at_s, point.packets)).collect();
        assert_eq!(points, [(0.0, 1), (0.0, 2), (0.01, 1)]);
        assert_eq!(trace.first_drop_s(), Some(0.5));
        assert_eq!(trace.windows, [WindowPoint { at_s: 0.25, segments: 20 }]);
        assert_eq!(queue_trace(&[], &[], 500, 0).longest().packets, 0);
    }
}
