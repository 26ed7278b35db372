//! Active health checks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use smig_proxy::ProxyError;
use smig_proxy::dial::{ServerAddr, connect};
use tokio::time::timeout;

use super::spec::{HealthSpec, Protocol};
use super::worker::{ApplyLimits, Http2Client};
use super::{Upstream, UpstreamServer};

impl Upstream {
    /// Probes each server at the configured interval, for as long as the upstream exists; returns
    /// at once if no health check is configured. Spawn it once, on any runtime.
    pub async fn check_health(this: Weak<Self>) {
        let Some(upstream) = this.upgrade() else { return };
        let Some(health) = upstream.health.clone() else { return };
        let server_count = upstream.servers.len();
        drop(upstream);
        let checks =
            (0..server_count).map(|server| check_loop(this.clone(), health.clone(), server));
        let mut tasks = tokio::task::JoinSet::new();
        for check in checks {
            tasks.spawn(check);
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn check_loop(weak_upstream: Weak<Upstream>, health: HealthSpec, server_index: usize) {
    loop {
        let Some(upstream) = weak_upstream.upgrade() else { return };
        let Some(server) = upstream.servers.get(server_index) else { return };
        let result = timeout(health.timeout, probe(&upstream, server, &health)).await;
        let has_passed = match result {
            Ok(Ok(status)) => status.is_success() || status.is_redirection(),
            Ok(Err(error)) => {
                tracing::debug!(server = %server.url(), %error, "health check failed");
                false
            }
            Err(_) => false,
        };
        server.record_health_check(has_passed, health.rise, health.fall);
        drop(upstream);
        tokio::time::sleep(health.interval.max(Duration::from_millis(10))).await;
    }
}

/// Sends one GET request on a new connection.
async fn probe(
    upstream: &Arc<Upstream>,
    server: &UpstreamServer,
    health: &HealthSpec,
) -> Result<StatusCode, ProxyError> {
    let url = server.url();
    let host = health.host.clone().unwrap_or_else(|| match &url.target {
        ServerAddr::Unix(_) => "localhost".to_owned(),
        ServerAddr::Tcp { .. } => url.authority(),
    });
    let bad_request = |_| ProxyError::BadRequest("invalid path or host of the health check");
    if url.protocol == Protocol::Http1 {
        let io = connect(&url.target, &upstream.resolver, None).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io))
            .await
            .map_err(ProxyError::from_hyper)?;
        let request = Request::get(&health.path)
            .header(http::header::HOST, host)
            .header(http::header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(bad_request)?;
        let mut sending = std::pin::pin!(sender.send_request(request));
        let mut connection = std::pin::pin!(connection);
        let response = tokio::select! {
            response = sending.as_mut() => response,
            _ = connection.as_mut() => sending.await,
        };
        return Ok(response.map_err(ProxyError::from_hyper)?.status());
    }
    let http2_client =
        Http2Client::new(upstream, server, ApplyLimits::No).map_err(ProxyError::from_smig)?;
    let uri = format!("{}://{host}{}", http2_client.scheme, health.path);
    let request = Request::get(uri).body(Empty::<Bytes>::new()).map_err(bad_request)?;
    let response = http2_client.client.request_to(&http2_client.origin, request).await;
    Ok(response.map_err(ProxyError::from_smig)?.status())
}
