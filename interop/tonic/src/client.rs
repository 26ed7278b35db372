//! The client. Returns its results as JSON, and an error if any check fails.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures_util::stream;
use http::uri::PathAndQuery;
use http_body::Body;
use prost::Message;
use serde_json::json;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::StdError;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::{CHUNK, chunk};

/// Size of a small call, in bytes, in each direction.
const SMALL: usize = 1024;
/// Time between two small calls.
const PAUSE: Duration = Duration::from_millis(50);
/// Timeout for calls that must end.
const CALL_END_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of the service over a channel.
#[derive(Clone, Debug)]
pub struct Client<T>(Grpc<T>);

impl<T> Client<T>
where
    T: GrpcService<tonic::body::Body> + Clone,
    T::ResponseBody: Body + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError>,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    /// Creates a client over a channel that knows its server.
    pub fn new(channel: T) -> Self {
        Self(Grpc::new(channel))
    }

    /// Creates a client over a channel that needs the server's address with each request.
    pub fn with_origin(channel: T, origin: http::Uri) -> Self {
        Self(Grpc::with_origin(channel, origin))
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn unary<Q, A>(&mut self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Default + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let request = Request::new(request);
        Ok(self.0.unary(request, PathAndQuery::from_static(method), codec).await?.into_inner())
    }

    async fn stream<Q, A>(
        &mut self,
        method: &'static str,
        request: Request<Q>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Default + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(method);
        Ok(self.0.server_streaming(request, path, codec).await?.into_inner())
    }

    /// Makes one small call; returns its duration in milliseconds.
    async fn small(&mut self, number: u64) -> Result<f64> {
        let (began, sent) = (Instant::now(), chunk(number, SMALL));
        let got: Bytes = self.unary("/smig.interop.Peer/Small", sent.clone()).await?;
        ensure!(got == sent, "a small call returned {} other bytes", got.len());
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }

    /// Requests a response of `count` messages; returns its duration in seconds.
    async fn big(&mut self, count: u64) -> Result<f64> {
        let began = Instant::now();
        let mut answers: Streaming<Bytes> =
            self.stream("/smig.interop.Peer/Big", Request::new(count)).await?;
        let mut number = 0;
        while let Some(got) = answers.message().await? {
            ensure!(got == chunk(number, CHUNK), "message {number} is not what was sent");
            number += 1;
        }
        ensure!(number == count, "{number} messages instead of {count}");
        Ok(began.elapsed().as_secs_f64())
    }

    /// Makes small calls alone, then during `bigs` responses of `chunks` messages, while a watch
    /// runs.
    ///
    /// # Errors
    /// Returns an error if any check fails.
    pub async fn load(&self, bigs: u32, chunks: u64) -> Result<serde_json::Value> {
        let (mut client, mut other, mut third) = (self.clone(), self.clone(), self.clone());
        let mut events: Streaming<u64> =
            third.stream("/smig.interop.Peer/Watch", Request::new(())).await?;
        ensure!(events.message().await? == Some(0), "the watch does not begin with 0");
        let mut numbers = 0..;
        let mut alone = Vec::new();
        for number in numbers.by_ref().take(30) {
            alone.push(client.small(number).await?);
            tokio::time::sleep(PAUSE).await;
        }
        let downloads = async {
            let mut seconds = Vec::new();
            for _ in 0..bigs {
                seconds.push(other.big(chunks).await?);
            }
            anyhow::Ok(seconds)
        };
        let mut gaps = Vec::new();
        let watching = async {
            let mut last = Instant::now();
            for expected in 1.. {
                let event = events.message().await?.context("the watch has ended")?;
                ensure!(event == expected, "event {event} of the watch instead of {expected}");
                gaps.push(last.elapsed().as_secs_f64() * 1e3);
                last = Instant::now();
            }
            anyhow::Ok(())
        };
        let mut beside = Vec::new();
        let calling = async {
            for number in numbers {
                beside.push(client.small(number).await?);
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(())
        };
        let seconds = tokio::select! {
            seconds = downloads => seconds?,
            ended = watching => bail!("the watch: {ended:?}"),
            ended = calling => bail!("a small call: {ended:?}"),
        };
        Ok(json!({
            "small_alone_ms": alone, "small_beside_ms": beside, "watch_gaps_ms": gaps, "big_s": seconds,
        }))
    }

    /// Tests other features of gRPC: uploads, statuses, deadlines, cancellation.
    ///
    /// # Errors
    /// Returns an error if any check fails.
    pub async fn checks(&mut self) -> Result<serde_json::Value> {
        self.small(0).await.context("a small call")?;
        self.upload(32).await.context("an upload")?;
        for events in [0, 3] {
            self.fail(events).await.with_context(|| format!("a status after {events} events"))?;
        }
        let before: u64 = self.unary("/smig.interop.Peer/EndedHolds", ()).await?;
        let left = self.deadline().await.context("a deadline")?;
        let mut held: Streaming<u64> =
            self.stream("/smig.interop.Peer/Hold", Request::new(())).await?;
        ensure!(held.message().await? == Some(0), "a call without a deadline has one");
        drop(held);
        self.await_ended_holds(before + 2)
            .await
            .context("the deadline and the cancel at the server")?;
        let unknown = self.unary::<(), ()>("/smig.interop.Peer/None", ()).await;
        let code = unknown.err().map(|status| status.code());
        ensure!(code == Some(Code::Unimplemented), "an unknown method: {code:?}");
        Ok(json!({ "checks": "good", "deadline_ms_at_server": left }))
    }

    async fn upload(&mut self, count: u64) -> Result<()> {
        self.ready().await?;
        let codec = ProstCodec::<Bytes, u64>::default();
        let path = PathAndQuery::from_static("/smig.interop.Peer/Upload");
        let chunks = stream::iter((0..count).map(|number| chunk(number, CHUNK)));
        let got = self.0.client_streaming(Request::new(chunks), path, codec).await?.into_inner();
        ensure!(got == count, "the server has {got} messages of {count}");
        Ok(())
    }

    async fn fail(&mut self, count: u64) -> Result<()> {
        let outcome = self.stream("/smig.interop.Peer/Fail", Request::new(count)).await;
        let mut seen = 0;
        let status = match outcome {
            Err(status) => status,
            Ok::<Streaming<u64>, _>(mut events) => loop {
                match events.message().await {
                    Ok(Some(event)) if event == seen => seen += 1,
                    Ok(other) => bail!("{other:?} instead of event {seen}"),
                    Err(status) => break status,
                }
            },
        };
        ensure!(seen == count, "{seen} events instead of {count}");
        let metadata = status.metadata();
        let detail = metadata.get_bin("x-detail-bin").and_then(|value| value.to_bytes().ok());
        let is_right = status.code() == Code::FailedPrecondition
            && status.message() == "no: 100 % ü"
            && metadata.get("x-reason").is_some_and(|reason| reason == "asked for")
            && detail.as_deref() == Some([0, 1, 254, 255].as_slice());
        ensure!(is_right, "{status:?}");
        Ok(())
    }

    /// Makes a call that exceeds its deadline. Returns the remaining time at the server, in
    /// milliseconds.
    async fn deadline(&mut self) -> Result<u64> {
        let mut request = Request::new(());
        request.set_timeout(Duration::from_secs(1));
        let mut held: Streaming<u64> = self.stream("/smig.interop.Peer/Hold", request).await?;
        let left = held.message().await?.context("no event")?;
        ensure!((1..=1000).contains(&left), "the server received a deadline of {left} ms");
        // tonic's own timeout only covers the head, so the client enforces the deadline itself.
        let waited = tokio::time::timeout(Duration::from_secs(1), held.message()).await;
        match waited {
            Err(_) => Ok(left),
            Ok(Err(status))
                if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) =>
            {
                Ok(left)
            }
            Ok(other) => bail!("{other:?} instead of the deadline"),
        }
    }

    async fn await_ended_holds(&mut self, count: u64) -> Result<()> {
        let asking = async {
            loop {
                let now: u64 = self.unary("/smig.interop.Peer/EndedHolds", ()).await?;
                if now >= count {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        within(asking).await
    }
}

async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL_END_TIMEOUT, work).await.context("timed out")?
}
