//! Waits for the response to a request over HTTP/2, within its timeouts.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use http::Response;
use smig::{Incoming, ResponseFuture};
use smig_proxy::ProxyError;
use smig_proxy::upload::{ResponseClock, ResponseTimeouts};
use tokio::time::Instant;

/// Minimum interval between checks whether a request was sent.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for a response's header section. The timeouts begin when the request has a stream; waiting
/// for a stream, or a connection, is limited by the HTTP/2 client.
pub(super) async fn await_response(
    mut response: ResponseFuture<'_>,
    timeouts: ResponseTimeouts,
) -> Result<Result<Response<Incoming>, smig::Error>, ProxyError> {
    // When the current attempt was sent, and its clock: the HTTP/2 client resends requests that the
    // server did not process.
    let mut current_attempt: Option<(std::time::Instant, ResponseClock)> = None;
    let mut timer = pin!(tokio::time::sleep(timeouts.first_timeout()));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = Pin::new(&mut response).poll(cx) {
                return Poll::Ready(Ok(output));
            }
            ready!(timer.as_mut().poll(cx));
            let sent_at = response.sent_at();
            let clock = current_attempt.take().filter(|(since, _)| Some(*since) == sent_at);
            let deadline = match (sent_at, clock) {
                (None, _) => Instant::now() + timeouts.first_timeout().max(MIN_CHECK_INTERVAL),
                (Some(at), None) => {
                    let clock = timeouts.clone().start();
                    let deadline = Instant::from_std(at) + clock.first_timeout();
                    current_attempt = Some((at, clock));
                    deadline
                }
                (Some(_), Some((since, mut clock))) => match clock.check_progress() {
                    Ok(remaining) => {
                        current_attempt = Some((since, clock));
                        Instant::now() + remaining
                    }
                    Err(failure) => return Poll::Ready(Err(failure)),
                },
            };
            timer.as_mut().reset(deadline);
        }
    })
    .await
}
