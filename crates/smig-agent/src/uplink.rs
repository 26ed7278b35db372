//! The connection to the gateway: established and re-established, with the reason while it is down.
//!
//! A single task connects. While the gateway is unreachable, requests fail at once with the reason,
//! so that a restarted gateway gets one attempt, not one for each waiting request.

use std::sync::Arc;
use std::time::Duration;

use http::header::{PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use smig::{BoxError, Client, Incoming, NegotiatedProtocol, Origin};
use smig_admin::spans::RequestSpan;
use smig_proxy::tunnel::{self, ConnectResponse, Stream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::error::LocalError;
use crate::options::Credentials;

/// Backoff after the first failed attempt; doubled after each further one.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(8);
/// Interval at which the session is checked, if no request finds it closed before.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of connecting. Longer than the client's own timeouts: it covers a gateway that completes the
/// handshake and then sends nothing.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of opening a tunnel; the gateway has its own limits.
const TUNNEL_OPEN_TIMEOUT: Duration = Duration::from_secs(45);
/// Maximum size in bytes of a refusal's text; a longer one is left out.
const MAX_ERROR_TEXT_BYTES: usize = 4 << 10;
/// Why requests fail after [`Uplink::stop`].
const SHUTDOWN_REASON: &str = "the agent is shutting down";

/// The state of the connection to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UplinkState {
    /// The agent connects for the first time, or again after a request found the connection lost.
    Connecting,
    /// The gateway is connected, with this protocol, or is being connected again after a loss that no request has
    /// found.
    Up(NegotiatedProtocol),
    /// The gateway is unreachable, and why; the agent keeps trying.
    Unreachable(Arc<str>),
}

/// The interface to the gateway for the local ports.
#[derive(Debug)]
pub(crate) struct Uplink {
    client: Client,
    origin: Origin,
    credentials: Option<Credentials>,
    state: watch::Sender<UplinkState>,
    /// Notified when a request finds the session closed.
    check_requested: Notify,
    stop_requested: Notify,
}

impl Uplink {
    pub(crate) fn new(
        client: Client,
        origin: Origin,
        credentials: Option<Credentials>,
    ) -> Arc<Self> {
        let (state, _) = watch::channel(UplinkState::Connecting);
        let (check_requested, stop_requested) = (Notify::new(), Notify::new());
        Arc::new(Self { client, origin, credentials, state, check_requested, stop_requested })
    }

    pub(crate) fn state(&self) -> watch::Receiver<UplinkState> {
        self.state.subscribe()
    }

    pub(crate) fn stats(&self) -> smig::Stats {
        self.client.stats()
    }

    /// Ends [`Self::run`].
    pub(crate) fn stop(&self) {
        self.stop_requested.notify_one();
    }

    /// Connects, and reconnects whenever the connection is lost.
    pub(crate) async fn run(&self) {
        tokio::select! {
            () = self.stop_requested.notified() => {}
            () = self.connect_repeatedly() => {}
        }
        // Otherwise requests would wait for a connection that no task establishes any more.
        self.state.send_if_modified(|current| {
            let is_connecting = *current == UplinkState::Connecting;
            if is_connecting {
                *current = UplinkState::Unreachable(SHUTDOWN_REASON.into());
            }
            is_connecting
        });
    }

    async fn connect_repeatedly(&self) {
        let mut backoff = MIN_BACKOFF;
        loop {
            match self.establish().await {
                Ok(protocol) => {
                    backoff = MIN_BACKOFF;
                    self.set_state(UplinkState::Up(protocol));
                    tokio::select! {
                        () = self.check_requested.notified() => self.set_state(UplinkState::Connecting),
                        () = tokio::time::sleep(CHECK_INTERVAL) => {}
                    }
                }
                // The state remains `Unreachable` during the next attempt: requests do not wait for
                // it.
                Err(why) => {
                    tracing::debug!(%why, "the gateway cannot be reached");
                    self.set_state(UplinkState::Unreachable(why.into()));
                    tokio::time::sleep(jitter(backoff)).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    /// Sets the state, and notifies the receivers if it changed.
    fn set_state(&self, state: UplinkState) {
        self.state.send_if_modified(|current| {
            let changed = *current != state;
            *current = state;
            changed
        });
    }

    /// Opens a session, or returns immediately if there is one.
    async fn establish(&self) -> Result<NegotiatedProtocol, String> {
        match timeout(ESTABLISH_TIMEOUT, self.client.connect(&self.origin)).await {
            Ok(Ok(NegotiatedProtocol::Http1)) => {
                Err("it supports only HTTP/1.1; an agent needs a gateway with HTTP/2".to_owned())
            }
            Ok(Ok(protocol)) => Ok(protocol),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it accepts connections, but does not respond".to_owned()),
        }
    }

    /// Waits for the gateway, and returns the negotiated protocol.
    ///
    /// # Errors
    /// The gateway is unreachable.
    pub(crate) async fn wait_until_ready(&self) -> Result<NegotiatedProtocol, LocalError> {
        let mut state = self.state.subscribe();
        match state.wait_for(|current| *current != UplinkState::Connecting).await.as_deref() {
            Ok(UplinkState::Up(protocol)) => Ok(*protocol),
            Ok(UplinkState::Unreachable(why)) => Err(self.unreachable_error(why)),
            Ok(UplinkState::Connecting) | Err(_) => Err(self.unreachable_error(SHUTDOWN_REASON)),
        }
    }

    fn unreachable_error(&self, why: &str) -> LocalError {
        let text = format!("the gateway {} cannot be reached: {why}", self.origin);
        LocalError::new(StatusCode::BAD_GATEWAY, text)
    }

    /// Converts an error of the session to a failure of the local request.
    fn handle_session_error(&self, error: &smig::Error) -> LocalError {
        if error.is_connect() || error.is_transport() {
            self.check_requested.notify_one();
        }
        let status =
            if error.is_timeout() { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
        LocalError::new(status, format!("no response from the gateway {}: {error}", self.origin))
    }

    /// Opens a tunnel to a destination, whose name the gateway resolves.
    ///
    /// # Errors
    /// The gateway is unreachable, or refuses the tunnel.
    pub(crate) async fn open_tunnel(
        &self,
        target: &Authority,
        span: &RequestSpan,
    ) -> Result<Stream, LocalError> {
        let mut has_retried = false;
        loop {
            self.wait_until_ready().await?;
            let mut request = Request::new(());
            *request.method_mut() = Method::CONNECT;
            *request.uri_mut() = Uri::from(target.clone());
            self.authorize(&mut request);
            span.inject(request.headers_mut());
            let opening =
                timeout(TUNNEL_OPEN_TIMEOUT, tunnel::open(&self.client, &self.origin, request));
            let Ok(open_result) = opening.await else {
                let text = format!(
                    "the gateway {} did not open a tunnel to {target} in time",
                    self.origin
                );
                return Err(LocalError::new(StatusCode::GATEWAY_TIMEOUT, text));
            };
            match open_result {
                Ok(ConnectResponse::Tunnel(_, stream)) => return Ok(stream),
                Ok(ConnectResponse::Refused(response)) => return Err(read_refusal(response).await),
                // The session was just closed and did not process the request: safe to retry.
                Err(error) if error.is_retryable() && !error.is_connect() && !has_retried => {
                    has_retried = true;
                }
                Err(error) => return Err(self.handle_session_error(&error)),
            }
        }
    }

    /// Sends a request whose URI names another host.
    ///
    /// # Errors
    /// The gateway is unreachable, or rejects the agent's credentials.
    pub(crate) async fn send<B>(
        &self,
        mut request: Request<B>,
    ) -> Result<Response<Incoming>, LocalError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        self.wait_until_ready().await?;
        self.authorize(&mut request);
        match self.client.request_to(&self.origin, request).await {
            // An origin's own 407 arrives without the challenge, which is for one hop.
            Ok(response)
                if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                    && response.headers().contains_key(PROXY_AUTHENTICATE) =>
            {
                Err(read_refusal(response).await)
            }
            Ok(response) => Ok(response),
            Err(error) => Err(self.handle_session_error(&error)),
        }
    }

    /// Triggers a check of the session after a stream failed.
    pub(crate) fn request_check(&self) {
        self.check_requested.notify_one();
    }

    fn authorize<B>(&self, request: &mut Request<B>) {
        let headers = request.headers_mut();
        // Credentials of local programs are not for the gateway.
        headers.remove(PROXY_AUTHORIZATION);
        if let Some(credentials) = &self.credentials {
            headers.insert(PROXY_AUTHORIZATION, credentials.value());
        }
    }
}

/// Converts a refusal to a failure with the gateway's text.
async fn read_refusal(response: Response<Incoming>) -> LocalError {
    let status = response.status();
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        // If it were forwarded, browsers would prompt their users for a password.
        let text = "the gateway rejected this agent's credentials; check its token and user";
        return LocalError::new(StatusCode::BAD_GATEWAY, text.to_owned()).with_not_allowed();
    }
    let kind = response
        .headers()
        .get("proxy-status")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').find_map(|part| part.trim().strip_prefix("error=")))
        .map(str::to_owned);
    // Bound the wait: a text that is too long, or does not arrive in time, is left out.
    let body = timeout(
        Duration::from_secs(5),
        Limited::new(response.into_body(), MAX_ERROR_TEXT_BYTES).collect(),
    );
    let text = match body.await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
        _ => String::new(),
    };
    let status = if status.is_client_error() || status.is_server_error() {
        status
    } else {
        StatusCode::BAD_GATEWAY
    };
    let text = if text.is_empty() { format!("the gateway responded with {status}") } else { text };
    LocalError::new(status, text).with_proxy_error(kind.as_deref())
}

/// Returns a random duration between half of `backoff` and all of it, so that agents that lost their gateway
/// at the same time do not reconnect at the same time.
fn jitter(backoff: Duration) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new().hash_one(0_u8);
    let part = (random % 1024) as u32;
    backoff / 2 + backoff / 2 * part / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_to_its_bounds() {
        for _ in 0..100 {
            let delay = jitter(MAX_BACKOFF);
            assert!(delay >= MAX_BACKOFF / 2 && delay <= MAX_BACKOFF);
        }
    }
}
