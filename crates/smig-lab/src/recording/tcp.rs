//! Samples all TCP connections of a host, on a thread inside its network namespace.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use smig_link::Time;
use smig_testbed::netns::{Host, HostThread};

use super::sock_diag::{SockDiag, TcpState};
use crate::timeline::{
    Annotation, AnnotationKind, Column, ConnectionName, Subject, Timeline, Track, micros_after,
};
use smig_testbed::netns::now;

/// Which end of its connections a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostSide {
    /// It accepts connections.
    Server,
    /// It opens connections.
    Client,
}

impl HostSide {
    fn connection_name(self, state: &TcpState) -> ConnectionName {
        let client = match self {
            Self::Server => state.remote,
            Self::Client => state.local,
        };
        ConnectionName(client.to_string())
    }
}

/// A sampler that runs until it is stopped.
#[derive(Debug)]
pub struct TcpSampler {
    stop_sender: mpsc::Sender<()>,
    thread: HostThread<io::Result<BTreeMap<u64, ConnectionSamples>>>,
    host: String,
    side: HostSide,
}

/// Samples of a host's connections.
#[derive(Debug)]
pub struct TcpSamples {
    host: String,
    side: HostSide,
    connections: BTreeMap<u64, ConnectionSamples>,
}

/// Samples of one connection, identified by the kernel's cookie.
#[derive(Debug, Default)]
struct ConnectionSamples {
    states: Vec<(Time, TcpState)>,
    /// Time of the latest sample without a change; recorded when a change follows, or at the end.
    unchanged_until: Option<Time>,
}

impl TcpSampler {
    /// Starts to sample a host's connections once per period; a period of 10 ms costs about 2 % of
    /// a core. The first sample is taken before this returns.
    ///
    /// # Errors
    /// If the host's namespace cannot be entered, or its kernel has no sock_diag.
    pub fn start(host: &Host, name: &str, side: HostSide, period: Duration) -> io::Result<Self> {
        let (stop_sender, stop_receiver) = mpsc::channel();
        let (ready_sender, ready_receiver) = mpsc::sync_channel(1);
        let thread = host.run(move || {
            let mut connections = BTreeMap::new();
            let first_sample = SockDiag::new().and_then(|mut sock_diag| {
                sample(&mut sock_diag, &mut connections)?;
                Ok(sock_diag)
            });
            let mut sock_diag = match first_sample {
                Ok(sock_diag) => {
                    let _ = ready_sender.send(Ok(()));
                    sock_diag
                }
                Err(error) => {
                    let _ = ready_sender.send(Err(error));
                    return Ok(connections);
                }
            };
            sample_until(&stop_receiver, period, &mut sock_diag, &mut connections)?;
            Ok(connections)
        })?;
        ready_receiver
            .recv()
            .map_err(|_| io::Error::other("the sampler's thread exited early"))??;
        Ok(Self { stop_sender, thread, host: name.to_owned(), side })
    }

    /// Takes a last sample and stops.
    ///
    /// # Errors
    /// If a sample could not be taken.
    pub fn stop(self) -> io::Result<TcpSamples> {
        drop(self.stop_sender);
        let connections =
            self.thread.join().map_err(|_| io::Error::other("the sampler panicked"))?;
        Ok(TcpSamples { host: self.host, side: self.side, connections: connections? })
    }
}

fn sample_until(
    stop_receiver: &mpsc::Receiver<()>,
    period: Duration,
    sock_diag: &mut SockDiag,
    connections: &mut BTreeMap<u64, ConnectionSamples>,
) -> io::Result<()> {
    let mut next_sample_at = Instant::now() + period;
    loop {
        let stop_signal =
            stop_receiver.recv_timeout(next_sample_at.saturating_duration_since(Instant::now()));
        sample(sock_diag, connections)?;
        if stop_signal != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
        // Skip missed samples: two at once carry no more information than one.
        next_sample_at = (next_sample_at + period).max(Instant::now());
    }
}

fn sample(
    sock_diag: &mut SockDiag,
    connections: &mut BTreeMap<u64, ConnectionSamples>,
) -> io::Result<()> {
    let before = now();
    let states = sock_diag.query()?;
    // Use the middle of the walk as the time of its samples.
    let at = before + now().since(before) / 2;
    for state in states {
        connections.entry(state.cookie).or_default().push(at, state);
    }
    Ok(())
}

impl ConnectionSamples {
    fn push(&mut self, at: Time, state: TcpState) {
        if let Some((_, last_state)) = self.states.last() {
            if *last_state == state {
                self.unchanged_until = Some(at);
                return;
            }
            if let Some(unchanged_until) = self.unchanged_until.take() {
                let last = last_state.clone();
                self.states.push((unchanged_until, last));
            }
        }
        self.states.push((at, state));
    }
}

impl TcpSamples {
    /// Returns the congestion control and, over time, the congestion window in segments of the connection that has sent most.
    #[must_use]
    pub fn main_sender(&self) -> Option<(String, Vec<(Time, u32)>)> {
        let main = self.connections.values().filter_map(|samples| {
            let (_, last_state) = samples.states.last()?;
            Some((last_state, &samples.states))
        });
        let (last_state, states) = main.max_by_key(|(last_state, _)| last_state.sent_bytes)?;
        let windows = states.iter().map(|(at, state)| (*at, state.cwnd_segments)).collect();
        Some((last_state.congestion_control.clone(), windows))
    }

    /// Adds a track for each connection to a timeline, with an annotation for its first congestion
    /// control and for each change. Omits connections that never carried a byte.
    pub fn append_to(&self, timeline: &mut Timeline) {
        let origin = timeline.origin();
        let mut tracks = Vec::new();
        for samples in self.connections.values() {
            let Some((_, last_state)) = samples.states.last() else { continue };
            if last_state.acked_bytes + last_state.received_bytes <= 1 {
                continue;
            }
            let connection = self.side.connection_name(last_state);
            let subject =
                Subject::Connection { host: self.host.clone(), connection: connection.clone() };
            let mut track = Track::new(subject);
            let mut congestion_control = "";
            for (at, state) in &samples.states {
                let at_us = micros_after(origin, *at);
                track.push(at_us, &column_values(state));
                if state.congestion_control != congestion_control {
                    congestion_control = &state.congestion_control;
                    timeline.annotations.push(Annotation {
                        at_us,
                        kind: AnnotationKind::CongestionControl,
                        host: self.host.clone(),
                        connection: Some(connection.clone()),
                        label: congestion_control.to_owned(),
                    });
                }
            }
            if let (Some(unchanged_until), Some((_, state))) =
                (samples.unchanged_until, samples.states.last())
            {
                track.push(micros_after(origin, unchanged_until), &column_values(state));
            }
            tracks.push(track);
        }
        tracks.sort_by_key(|track| track.at_us.first().copied());
        timeline.tracks.extend(tracks);
        timeline.annotations.sort_by_key(|mark| mark.at_us);
    }
}

fn column_values(state: &TcpState) -> [(Column, u64); 17] {
    let mss = u64::from(state.mss);
    [
        (Column::CwndBytes, u64::from(state.cwnd_segments) * mss),
        (Column::SsthreshBytes, u64::from(state.ssthresh_segments) * mss),
        (Column::UnackedBytes, state.unacked_bytes),
        (Column::UnsentBytes, state.unsent_bytes),
        (Column::SendWindowBytes, state.send_window_bytes.into()),
        (Column::AckedBytes, state.acked_bytes),
        (Column::ReceivedBytes, state.received_bytes),
        (Column::SentBytes, state.sent_bytes),
        (Column::RetransmittedBytes, state.retransmitted_bytes),
        (Column::LostSegments, state.lost_segments.into()),
        (Column::SrttUs, state.srtt_us.into()),
        (Column::MinRttUs, state.min_rtt_us.into()),
        (Column::DeliveryBytesPerS, state.delivery_bytes_per_s),
        (Column::PacingBytesPerS, state.pacing_bytes_per_s),
        (Column::BusyUs, state.busy_us),
        (Column::ReceiverLimitedUs, state.receiver_limited_us),
        (Column::BufferLimitedUs, state.buffer_limited_us),
    ]
}
