//! Servers and clients on loopback, for the tests of this crate.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use sha2::{Digest as _, Sha256};
use smig::{
    BoxError, Client, ClientBuilder, Incoming, Observer, ObserverEvent, Server, ServerBuilder,
    ServerTls, Trust,
};
use tokio::sync::mpsc;

pub(crate) type Body = BoxBody<Bytes, BoxError>;

/// A self-signed certificate for localhost.
pub(crate) struct CertificatePem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

pub(crate) fn certificate() -> CertificatePem {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    CertificatePem { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Returns matching builders of a server and a client, with TLS.
pub(crate) fn pair() -> (ServerBuilder, ClientBuilder) {
    let made = certificate();
    let tls = ServerTls::from_pem(made.certificate.as_bytes(), made.key.as_bytes()).unwrap();
    let server = Server::builder().listen(loopback(), tls).workers(NonZeroUsize::MIN);
    let client = Client::builder().trust(Trust::Pem(made.certificate.into_bytes()));
    (server, client)
}

pub(crate) fn url(server: &Server, path: &str) -> String {
    format!("https://localhost:{}{path}", server.local_addrs()[0].port())
}

pub(crate) fn get(url: impl AsRef<str>) -> Request<Full<Bytes>> {
    Request::get(url.as_ref()).body(Full::default()).unwrap()
}

pub(crate) fn full(data: impl Into<Bytes>) -> Body {
    Full::new(data.into()).map_err(|never| match never {}).boxed()
}

/// Returns `len` pseudo-random bytes, the same on each call.
pub(crate) fn bytes(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

pub(crate) fn sha256(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// Hashes a body while it arrives; also returns its length.
pub(crate) async fn digest(mut body: Incoming) -> Result<([u8; 32], u64), smig::Error> {
    let (mut hash, mut len) = (Sha256::new(), 0);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            hash.update(&data);
            len += data.len() as u64;
        }
    }
    Ok((hash.finalize().into(), len))
}

/// Test service: `/echo` returns the request's body, `/bytes/N` N bytes, `/digest` the body's
/// SHA-256, `/` a greeting; everything else is a 404.
pub(crate) async fn answer(request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let path = request.uri().path().to_owned();
    let response = match path.split_once("/bytes/") {
        Some((_, len)) => Response::new(sized_body(len.parse()?)),
        None => match &*path {
            "/" => Response::new(full("hello")),
            "/echo" => Response::new(request.into_body().map_err(BoxError::from).boxed()),
            "/digest" => {
                let (hash, _) = digest(request.into_body()).await?;
                Response::new(full(hash.to_vec()))
            }
            _ => Response::builder().status(404).body(full("not found"))?,
        },
    };
    Ok(response)
}

/// Returns a body of known length.
fn sized_body(len: usize) -> Body {
    full(bytes(len))
}

/// Observer that sends all events to a channel.
pub(crate) struct EventRecorder(mpsc::UnboundedSender<ObserverEvent>);

impl EventRecorder {
    pub(crate) fn new() -> (Arc<Self>, Events) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self(sender)), Events { receiver, unclaimed: Vec::new() })
    }
}

impl Observer for EventRecorder {
    fn on_event(&self, event: &ObserverEvent) {
        // A test that has ended has dropped the receiver.
        drop(self.0.send(event.clone()));
    }
}

/// Observed events that no test has taken yet. Several tasks report to one observer, so the order
/// of events is not fixed: waiting for one event does not drop the others.
pub(crate) struct Events {
    receiver: mpsc::UnboundedReceiver<ObserverEvent>,
    /// In the order of arrival.
    unclaimed: Vec<ObserverEvent>,
}

impl Events {
    /// Takes the first event that matches, as soon as there is one.
    async fn take(&mut self, is_match: impl Fn(&ObserverEvent) -> bool) -> ObserverEvent {
        if let Some(at) = self.unclaimed.iter().position(&is_match) {
            return self.unclaimed.remove(at);
        }
        loop {
            let Some(event) = self.receiver.recv().await else {
                panic!("the observed endpoint has ended; unclaimed: {:#?}", self.unclaimed);
            };
            if is_match(&event) {
                return event;
            }
            self.unclaimed.push(event);
        }
    }
}

/// Waits for the future; panics with `description` after a timeout.
pub(crate) async fn within<T>(description: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("timed out: {description}"))
}

/// Waits for an event; each event satisfies one call.
pub(crate) async fn wait_for_event(
    events: &mut Events,
    is_match: impl Fn(&ObserverEvent) -> bool,
) -> ObserverEvent {
    let limit = Duration::from_secs(120);
    match tokio::time::timeout(limit, events.take(is_match)).await {
        Ok(event) => event,
        Err(_) => panic!("not observed in {limit:?}; unclaimed: {:#?}", events.unclaimed),
    }
}

#[tokio::test]
async fn an_event_can_be_awaited_after_a_later_one() {
    let (observer, mut events) = EventRecorder::new();
    let is_opening = |event: &ObserverEvent| matches!(event, ObserverEvent::StreamOpened { .. });
    for event in [ObserverEvent::StreamOpened { stream: None }, ObserverEvent::HandshakeFailed] {
        observer.on_event(&event);
    }
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::HandshakeFailed)).await;
    wait_for_event(&mut events, is_opening).await;
    assert!(!events.unclaimed.iter().any(is_opening), "each event is returned once");
}
