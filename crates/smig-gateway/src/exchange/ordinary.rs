//! A request that does not switch protocols: sent to one server after the other until one responds or a
//! failure may not be retried.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Extensions, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming as Received;
use smig::InformationalSender;
use smig_proxy::conn_pool::{Lease, SendError};
use smig_proxy::framing::Content;
use smig_proxy::head::{self, UpstreamHead};
use smig_proxy::upload::{ResponseTimeouts, Upload};
use smig_proxy::{ProxyError, grpc};

use super::attempts::Attempts;
use super::await_response::await_response;
use super::body::Body;
use super::informational::{InformationalForwarding, handle_informational};
use super::request::ProxyRole;
use crate::upstream::{
    ActiveRequest, BalanceInput, Connection, Http2Client, Upstream, WorkerPools,
};

/// A request that does not switch protocols.
pub(super) struct OrdinaryExchange<'a> {
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) client: SocketAddr,
    pub(super) content: Content<Upload>,
    pub(super) informational: Option<InformationalSender>,
    pub(super) role: ProxyRole,
}

impl OrdinaryExchange<'_> {
    const fn upload(&self) -> &Upload {
        self.content.body()
    }

    /// Tries servers until one responds, none is left, or a failure may not be retried.
    ///
    /// A future is stored in the one that awaits it, with space for all of its states: large values
    /// are boxed, and functions that do not wait are not async.
    pub(super) async fn run(
        self,
        upstream_head: Box<UpstreamHead>,
        mut extensions: Extensions,
    ) -> Result<Response<Body>, ProxyError> {
        let pools = WorkerPools::get_or_create(self.upstream);
        let mut attempts = Attempts::new(self.upstream);
        let mut pending_head = Some(upstream_head);
        let mut last_failure = ProxyError::NoServer;
        while let Some(upstream_head) = pending_head.take() {
            let input = BalanceInput {
                client: self.client,
                uri: &upstream_head.uri,
                headers: &upstream_head.fields,
            };
            let Some((server_index, active_request)) = attempts.begin_next(input) else { break };
            let (Some(pool), Some(server)) = (pools.pool(server_index), active_request.server())
            else {
                break;
            };
            let is_idempotent = upstream_head.method.is_idempotent();
            // Clone it only while a retry is possible.
            pending_head = attempts.can_retry().then(|| upstream_head.clone());
            let failure = match pool.connection(self.upstream, server).await {
                Ok(Connection::Http1(mut lease)) => {
                    let result = match self.send_http1(*upstream_head, &mut extensions, &mut lease)
                    {
                        Ok(response) => response.await.map_err(ProxyError::from),
                        Err(failure) => Err(failure),
                    };
                    match result
                        .and_then(|response| self.finish_http1(response, lease, active_request))
                    {
                        Ok(response) => return Ok(response),
                        Err(failure) => failure,
                    }
                }
                Ok(Connection::Http2(http2_client)) => {
                    let exchange = self.send_http2(*upstream_head, &http2_client, active_request);
                    // The state is large, and HTTP/1.1 does not need it.
                    match Box::pin(exchange).await {
                        Ok(response) => return Ok(response),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            if self.upload().has_failed() {
                return Err(ProxyError::RequestBody(failure.to_string()));
            }
            attempts.record_failure(server_index, &failure);
            if self.upload().is_touched()
                || !failure.may_retry(is_idempotent)
                || !attempts.take_retry(server_index, &failure)
            {
                return Err(failure);
            }
            last_failure = failure;
        }
        Err(last_failure)
    }

    /// Returns the timeouts for a request. gRPC calls require HTTP/2 to the server, and have their own deadlines
    /// there, or none.
    fn response_timeouts(&self, upstream_head: &UpstreamHead) -> ResponseTimeouts {
        match grpc::is_grpc(&upstream_head.fields) {
            true => ResponseTimeouts::unlimited(self.upload()),
            false => self.upstream.timeouts().response_timeouts(self.upload()),
        }
    }

    /// Starts to send a request over HTTP/1.1. The extensions have no meaning there; their allocation is reused.
    fn send_http1<'l>(
        &self,
        upstream_head: UpstreamHead,
        extensions: &mut Extensions,
        lease: &'l mut Lease,
    ) -> Result<impl Future<Output = Result<Response<Received>, SendError>> + use<'l>, ProxyError>
    {
        let mut request = head::into_http1_request(upstream_head, self.content.clone())?;
        *request.extensions_mut() = std::mem::take(extensions);
        if let Some(informational) = &self.informational {
            let (informational, upload) = (informational.clone(), self.upload().clone());
            let forwarding = InformationalForwarding::new(self.role, Version::HTTP_11);
            hyper::ext::on_informational(&mut request, move |head| {
                handle_informational(
                    &informational,
                    &upload,
                    &forwarding,
                    head.status(),
                    head.headers(),
                );
            });
        }
        let Some(connection) = lease.get() else { return Err(ProxyError::NoServer) };
        let timeouts = self.upstream.timeouts().response_timeouts(self.upload());
        Ok(connection.send(request, timeouts))
    }

    /// Turns a response received over HTTP/1.1 into the one for the client.
    fn finish_http1(
        &self,
        mut response: Response<Received>,
        lease: Lease,
        active_request: ActiveRequest,
    ) -> Result<Response<Body>, ProxyError> {
        head::validate_response(&mut response)?;
        if let Some(server) = active_request.server() {
            server.on_success();
        }
        let (parts, incoming) = response.into_parts();
        let body = if incoming.is_end_stream() {
            lease.release();
            Body::empty()
        } else {
            let idle_timeout = self.upstream.timeouts().stream_idle_of(&parts.headers);
            Body::http1(incoming, lease, active_request, self.upload().downgrade(), idle_timeout)
        };
        Ok(Response::from_parts(parts, body))
    }

    async fn send_http2(
        &self,
        upstream_head: UpstreamHead,
        http2_client: &Http2Client,
        active_request: ActiveRequest,
    ) -> Result<Response<Body>, ProxyError> {
        let timeouts = self.upstream.timeouts();
        let response_timeouts = self.response_timeouts(&upstream_head);
        let mut request =
            head::into_http2_request(upstream_head, &http2_client.scheme, self.content.clone())?;
        if let Some(informational) = &self.informational {
            let (informational, upload) = (informational.clone(), self.upload().clone());
            let forwarding = InformationalForwarding::new(self.role, Version::HTTP_2);
            smig::on_informational(&mut request, move |status, headers| {
                handle_informational(&informational, &upload, &forwarding, status, headers);
            });
        }
        let response_future = http2_client
            .client
            .submit(&http2_client.origin, request)
            .map_err(ProxyError::from_smig)?;
        let mut response = await_response(response_future, response_timeouts)
            .await?
            .map_err(ProxyError::from_smig)?;
        if response.version() < Version::HTTP_2 {
            if let Some(server) = active_request.server() {
                http2_client.record_fallback(server);
            }
            head::validate_response(&mut response)?;
        } else {
            head::validate_http2_response(&mut response)?;
        }
        if let Some(server) = active_request.server() {
            server.on_success();
        }
        let (parts, incoming) = response.into_parts();
        let weak_upload = self.upload().downgrade();
        if !self.upload().is_empty()
            && let Some(stream) = incoming.stream_info()
        {
            // RFC 9113 section 8.1: the server need not refuse the rest of the request, and an idle client must not
            // occupy the server's stream.
            stream.stop_upload_after_response();
        }
        let body = if incoming.is_end_stream() {
            weak_upload.hold_guard(active_request);
            Body::empty()
        } else {
            let idle_timeout = timeouts.stream_idle_of(&parts.headers);
            let body = Body::http2(incoming, active_request, weak_upload, idle_timeout);
            match grpc::is_grpc(&parts.headers) {
                true => body.with_grpc_messages(),
                false => body,
            }
        };
        Ok(Response::from_parts(parts, body))
    }
}
