//! Two ends joined.

use std::future::{Future as _, poll_fn};
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::end::End;

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    A,
    /// The second one.
    B,
}

/// Why a tunnel ended before both of its directions had ended in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// An end failed: its peer reset it, or the way to it broke.
    #[error("the tunnel broke at its {} end: {source}", match side { Side::A => "near", Side::B => "far" })]
    End {
        /// The end.
        side: Side,
        /// What it reported.
        source: io::Error,
    },
    /// Nothing moved for this long, either way.
    #[error("no octet moved in the tunnel for {} s", .0.as_secs())]
    Idle(Duration),
}

impl Broken {
    /// Whether a session's connection broke under the tunnel.
    #[must_use]
    pub fn is_transport(&self) -> bool {
        let Self::End { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|error| error.downcast_ref::<smig::Error>());
        inner.is_some_and(smig::Error::is_transport)
    }
}

/// What became of a tunnel.
#[derive(Debug)]
pub struct Outcome {
    /// Octets from A to B.
    pub sent: u64,
    /// Octets from B to A.
    pub received: u64,
    /// Whether both directions ended in order.
    pub end: Result<(), Broken>,
}

/// Carries octets between two ends until both directions have ended, one of the ends fails, or
/// nothing moved for `idle`. An end of one direction is passed on while the other goes on. Unless
/// both ended in order, both ends are reset.
pub async fn relay<A: End, B: End>(a: A, b: B, idle: Option<Duration>) -> Outcome {
    relay_telling(a, b, idle, |_, _| {}).await
}

/// The same, and tells on the way how many octets have passed from A to B and from B to A.
pub(super) async fn relay_telling<A: End, B: End>(
    mut a: A,
    mut b: B,
    idle: Option<Duration>,
    mut tell: impl FnMut(u64, u64),
) -> Outcome {
    let (mut there, mut back) = (Direction::default(), Direction::default());
    let mut last = Instant::now();
    let mut timer = idle.map(|idle| (idle, Box::pin(sleep(idle))));
    let end = poll_fn(|cx| {
        let before = there.octets + back.octets;
        let there_ended = there.poll(&mut a, Side::A, &mut b, Side::B, cx)?.is_ready();
        let back_ended = back.poll(&mut b, Side::B, &mut a, Side::A, cx)?.is_ready();
        if there_ended && back_ended {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(source) = a.poll_gone(cx) {
            return Poll::Ready(Err(Broken::End { side: Side::A, source }));
        }
        if let Poll::Ready(source) = b.poll_gone(cx) {
            return Poll::Ready(Err(Broken::End { side: Side::B, source }));
        }
        let has_moved = there.octets + back.octets > before;
        if has_moved {
            tell(there.octets, back.octets);
        }
        let Some((idle, timer)) = &mut timer else { return Poll::Pending };
        if has_moved {
            last = Instant::now();
        }
        // The timer is set again when it fires, not for each piece.
        while timer.as_mut().poll(cx).is_ready() {
            if last.elapsed() >= *idle {
                return Poll::Ready(Err(Broken::Idle(*idle)));
            }
            timer.as_mut().reset(last + *idle);
        }
        Poll::Pending
    })
    .await;
    Outcome { sent: there.octets, received: back.octets, end }
}

/// One direction of a tunnel.
#[derive(Debug, Default)]
struct Direction {
    /// Read and not written yet.
    pending: Bytes,
    octets: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Carrying,
    /// The source has ended.
    Finishing,
    Ended,
}

impl Direction {
    fn poll(
        &mut self,
        from: &mut impl End,
        from_side: Side,
        to: &mut impl End,
        to_side: Side,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        let at = |side| move |source| Broken::End { side, source };
        loop {
            if !self.pending.is_empty() {
                let before = self.pending.len();
                ready!(to.poll_write(cx, &mut self.pending)).map_err(at(to_side))?;
                self.octets += (before - self.pending.len()) as u64;
                if self.pending.is_empty() {
                    // Even of no octets it would hold the buffer that they came in.
                    self.pending = Bytes::new();
                }
                continue;
            }
            match self.phase {
                Phase::Carrying => match from.poll_read(cx) {
                    Poll::Ready(Ok(data)) if data.is_empty() => self.phase = Phase::Finishing,
                    Poll::Ready(Ok(data)) => self.pending = data,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(at(from_side)(error))),
                    Poll::Pending => {
                        ready!(to.poll_flush(cx)).map_err(at(to_side))?;
                        return Poll::Pending;
                    }
                },
                Phase::Finishing => {
                    ready!(to.poll_finish(cx)).map_err(at(to_side))?;
                    self.phase = Phase::Ended;
                }
                Phase::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}
