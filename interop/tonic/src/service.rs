//! The service: `smig.interop.Peer`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http_body::Body;
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::{CHUNK, chunk};

/// Time between two events of Watch.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);

/// The service. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Number of Hold calls that the client ended.
    ended_holds: Arc<AtomicU64>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl<B> Service<http::Request<B>> for Peer
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/smig.interop.Peer/Small" => {
                    Grpc::new(ProstCodec::<Bytes, Bytes>::default())
                        .unary(service_fn(small), request)
                        .await
                }
                "/smig.interop.Peer/Watch" => {
                    Grpc::new(ProstCodec::<u64, ()>::default())
                        .server_streaming(service_fn(watch), request)
                        .await
                }
                "/smig.interop.Peer/Big" => {
                    Grpc::new(ProstCodec::<Bytes, u64>::default())
                        .server_streaming(service_fn(big), request)
                        .await
                }
                "/smig.interop.Peer/Upload" => {
                    Grpc::new(ProstCodec::<u64, Bytes>::default())
                        .client_streaming(service_fn(upload), request)
                        .await
                }
                "/smig.interop.Peer/Fail" => {
                    Grpc::new(ProstCodec::<u64, u64>::default())
                        .server_streaming(service_fn(fail), request)
                        .await
                }
                "/smig.interop.Peer/Hold" => {
                    Grpc::new(ProstCodec::<u64, ()>::default())
                        .server_streaming(service_fn(|request| this.hold(request)), request)
                        .await
                }
                "/smig.interop.Peer/EndedHolds" => {
                    Grpc::new(ProstCodec::<u64, ()>::default())
                        .unary(service_fn(|request| this.ended_holds(request)), request)
                        .await
                }
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// Returns the request's message.
async fn small(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    Ok(Response::new(request.into_inner()))
}

/// Sends an event with its number ten times per second, indefinitely.
async fn watch(_: Request<()>) -> Result<Response<Answers<u64>>, Status> {
    let mut timer = tokio::time::interval(EVENT_INTERVAL);
    // After a delay, send the missed events too.
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let events = stream::unfold((timer, 0), |(mut timer, number)| async move {
        timer.tick().await;
        Some((Ok(number), (timer, number + 1)))
    });
    Ok(Response::new(events.boxed()))
}

/// Sends the requested number of 64 KiB messages.
async fn big(request: Request<u64>) -> Result<Response<Answers<Bytes>>, Status> {
    let chunks = stream::iter((0..request.into_inner()).map(|number| Ok(chunk(number, CHUNK))));
    Ok(Response::new(chunks.boxed()))
}

/// Checks and counts the received 64 KiB messages.
async fn upload(request: Request<Streaming<Bytes>>) -> Result<Response<u64>, Status> {
    let (mut chunks, mut count) = (request.into_inner(), 0);
    while let Some(got) = chunks.message().await? {
        if got != chunk(count, CHUNK) {
            return Err(Status::data_loss(format!("message {count} is not what was sent")));
        }
        count += 1;
    }
    Ok(Response::new(count))
}

/// Sends the requested number of events, then a status with metadata; after zero events, the status
/// is in the response's head.
async fn fail(request: Request<u64>) -> Result<Response<Answers<u64>>, Status> {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-reason", MetadataValue::from_static("asked for"));
    metadata.insert_bin("x-detail-bin", MetadataValue::from_bytes(&[0, 1, 254, 255]));
    let message = "no: 100 % ü";
    let status = Status::with_metadata(Code::FailedPrecondition, message, metadata);
    match request.into_inner() {
        0 => Err(status),
        count => {
            let events = stream::iter((0..count).map(Ok).chain([Err(status)]));
            Ok(Response::new(events.boxed()))
        }
    }
}

impl Peer {
    /// Sends one event, the client's remaining time in milliseconds (0: no deadline); then nothing
    /// until the client ends the call.
    async fn hold(&self, request: Request<()>) -> Result<Response<Answers<u64>>, Status> {
        let left = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
        let first = stream::iter([Ok(left.and_then(millis).unwrap_or(0))]);
        let guard = Guard(Arc::clone(&self.ended_holds));
        let rest = stream::once(async move {
            let _guard = guard;
            std::future::pending().await
        });
        Ok(Response::new(first.chain(rest).boxed()))
    }

    /// Returns the number of Hold calls that clients have ended.
    async fn ended_holds(&self, _: Request<()>) -> Result<Response<u64>, Status> {
        Ok(Response::new(self.ended_holds.load(Ordering::Relaxed)))
    }
}

struct Guard(Arc<AtomicU64>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Parses a value of `grpc-timeout` to milliseconds.
fn millis(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => number * 3_600_000,
        "M" => number * 60_000,
        "S" => number * 1_000,
        "m" => number,
        "u" => number / 1_000,
        "n" => number / 1_000_000,
        _ => return None,
    })
}
