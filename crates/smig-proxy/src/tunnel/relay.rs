//! The relay between two ends.

use std::future::{Future as _, poll_fn};
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::end::TunnelEndpoint;

/// One of the two ends of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelSide {
    /// The end of the client that opened the tunnel.
    Client,
    /// The other end, towards the destination.
    Remote,
}

/// Why a tunnel ended before both of its directions had completed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// An end failed: its peer reset it, or the connection to it failed.
    #[error("the tunnel failed at the {} end: {source}", match side { TunnelSide::Client => "client's", TunnelSide::Remote => "other" })]
    End {
        /// The end.
        side: TunnelSide,
        /// The error that it reported.
        source: io::Error,
    },
    /// No byte was relayed for this long, in either direction.
    #[error("the tunnel was idle for {} s", .0.as_secs())]
    Idle(Duration),
}

impl TunnelError {
    /// Returns whether the tunnel failed because its session's connection did.
    #[must_use]
    pub fn is_transport(&self) -> bool {
        let Self::End { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|error| error.downcast_ref::<smig::Error>());
        inner.is_some_and(smig::Error::is_transport)
    }
}

/// The result of a tunnel.
#[derive(Debug)]
pub struct TunnelOutcome {
    /// Bytes from the client to the remote end.
    pub bytes_to_remote: u64,
    /// Bytes from the remote end to the client.
    pub bytes_to_client: u64,
    /// Whether both directions completed.
    pub end: Result<(), TunnelError>,
}

/// Relays bytes between two ends until both directions have completed, one of the ends fails, or nothing was
/// relayed for `idle_timeout`. The end of one direction is passed on while the other continues. Unless both completed,
/// both ends are reset.
pub async fn relay<C: TunnelEndpoint, R: TunnelEndpoint>(
    client: C,
    remote: R,
    idle_timeout: Option<Duration>,
) -> TunnelOutcome {
    relay_with_progress(client, remote, idle_timeout, |_, _| {}).await
}

/// Like [`relay`], and calls `on_progress` with the bytes relayed so far: to the remote end, and to the client. The
/// final totals are only in the outcome.
pub(super) async fn relay_with_progress<C: TunnelEndpoint, R: TunnelEndpoint>(
    mut client: C,
    mut remote: R,
    idle_timeout: Option<Duration>,
    mut on_progress: impl FnMut(u64, u64),
) -> TunnelOutcome {
    let (mut to_remote, mut to_client) = (Direction::default(), Direction::default());
    let mut last_progress = Instant::now();
    let mut timer = idle_timeout.map(|idle| (idle, Box::pin(sleep(idle))));
    let end = poll_fn(|cx| {
        let bytes_before = to_remote.bytes + to_client.bytes;
        let to_remote_ended = to_remote
            .poll(&mut client, TunnelSide::Client, &mut remote, TunnelSide::Remote, cx)?
            .is_ready();
        let to_client_ended = to_client
            .poll(&mut remote, TunnelSide::Remote, &mut client, TunnelSide::Client, cx)?
            .is_ready();
        if to_remote_ended && to_client_ended {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(source) = client.poll_reset(cx) {
            return Poll::Ready(Err(TunnelError::End { side: TunnelSide::Client, source }));
        }
        if let Poll::Ready(source) = remote.poll_reset(cx) {
            return Poll::Ready(Err(TunnelError::End { side: TunnelSide::Remote, source }));
        }
        let has_progressed = to_remote.bytes + to_client.bytes > bytes_before;
        if has_progressed {
            on_progress(to_remote.bytes, to_client.bytes);
        }
        let Some((idle_timeout, timer)) = &mut timer else { return Poll::Pending };
        if has_progressed {
            last_progress = Instant::now();
        }
        // The timer is reset when it fires, not for each chunk.
        while timer.as_mut().poll(cx).is_ready() {
            if last_progress.elapsed() >= *idle_timeout {
                return Poll::Ready(Err(TunnelError::Idle(*idle_timeout)));
            }
            timer.as_mut().reset(last_progress + *idle_timeout);
        }
        Poll::Pending
    })
    .await;
    TunnelOutcome { bytes_to_remote: to_remote.bytes, bytes_to_client: to_client.bytes, end }
}

/// One direction of a tunnel.
#[derive(Debug, Default)]
struct Direction {
    /// Data that was read and not yet written.
    pending_data: Bytes,
    bytes: u64,
    state: DirectionState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DirectionState {
    #[default]
    Relaying,
    /// The source's direction has completed.
    Finishing,
    Ended,
}

impl Direction {
    fn poll(
        &mut self,
        source_endpoint: &mut impl TunnelEndpoint,
        from_side: TunnelSide,
        destination_endpoint: &mut impl TunnelEndpoint,
        to_side: TunnelSide,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TunnelError>> {
        let failed_at = |side| move |source| TunnelError::End { side, source };
        loop {
            if !self.pending_data.is_empty() {
                let before = self.pending_data.len();
                ready!(destination_endpoint.poll_write(cx, &mut self.pending_data))
                    .map_err(failed_at(to_side))?;
                self.bytes += (before - self.pending_data.len()) as u64;
                if self.pending_data.is_empty() {
                    // Even when empty it would hold the buffer that the bytes were read into.
                    self.pending_data = Bytes::new();
                }
                continue;
            }
            match self.state {
                DirectionState::Relaying => match source_endpoint.poll_read(cx) {
                    Poll::Ready(Ok(data)) if data.is_empty() => {
                        self.state = DirectionState::Finishing
                    }
                    Poll::Ready(Ok(data)) => self.pending_data = data,
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(failed_at(from_side)(error)));
                    }
                    Poll::Pending => {
                        ready!(destination_endpoint.poll_flush(cx)).map_err(failed_at(to_side))?;
                        return Poll::Pending;
                    }
                },
                DirectionState::Finishing => {
                    ready!(destination_endpoint.poll_finish(cx)).map_err(failed_at(to_side))?;
                    self.state = DirectionState::Ended;
                }
                DirectionState::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}
