//! A validated request: what its exchange needs, by its kind.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{ALLOW, EXPECT, VIA};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use smig::{Incoming, InformationalSender};
use smig_proxy::ProxyError;
use smig_proxy::framing::{self, Content};
use smig_proxy::head::{self, UpgradeHandling, UpgradeKind, UpstreamHead};
use smig_proxy::tunnel::TunnelRegistry;
use smig_proxy::upload::Upload;

use super::body::Body;
use super::failure::report_failure;
use super::ordinary::OrdinaryExchange;
use super::switch::UpgradeExchange;
use crate::upstream::Upstream;

/// A validated request for an upstream, without hop-by-hop fields.
///
/// It is part of the future of each active request: large parts are boxed.
#[derive(Debug)]
pub(crate) struct ValidRequest {
    upstream_head: Box<UpstreamHead>,
    kind: ExchangeKind,
    role: ProxyRole,
}

/// The role of this program for a request (RFC 9110 section 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyRole {
    /// A reverse proxy.
    Gateway,
    /// A forward proxy, which adds Via to requests and responses.
    Proxy,
}

/// What an exchange needs besides the header section, by its kind.
#[derive(Debug)]
enum ExchangeKind {
    Ordinary {
        content: Content<Upload>,
        informational: Option<InformationalSender>,
        extensions: Extensions,
    },
    Upgrade(Box<DownstreamParts>),
    /// This program is the final recipient (Max-Forwards is 0): the request is not forwarded.
    FinalRecipient,
}

/// The client's end of a request that switches protocols.
#[derive(Debug)]
struct DownstreamParts {
    /// The client's data on its stream, over HTTP/2.
    body: Incoming,
    /// The client's connection, over HTTP/1.1.
    on_upgrade: Option<OnUpgrade>,
}

/// Validates a request of the reverse proxy, which adds no Via: nginx, as an upstream, compresses
/// no response to a request that has it (`gzip_proxied`). `host` is the URI's authority as a field
/// value, if that exists already.
pub(crate) fn validate(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
) -> Result<ValidRequest, ProxyError> {
    validate_as(request, host, ProxyRole::Gateway)
}

/// Validates a request of the forward proxy, which cannot switch protocols.
pub(crate) fn validate_for_forward_proxy(
    mut request: Request<Incoming>,
) -> Result<ValidRequest, ProxyError> {
    let via = head::via(request.version());
    head::check_expect(request.headers())?;
    // The gateway's own server sends 100.
    request.headers_mut().remove(EXPECT);
    let mut request = validate_as(request, None, ProxyRole::Proxy)?;
    request.upstream_head.fields.set(framing::ProxyField::Via, via);
    Ok(request)
}

fn validate_as(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
    role: ProxyRole,
) -> Result<ValidRequest, ProxyError> {
    let (mut parts, body) = request.into_parts();
    let is_final_recipient = head::decrement_max_forwards(&parts.method, &mut parts.headers)?;
    let informational = parts.extensions.remove::<InformationalSender>();
    let on_upgrade = parts.extensions.remove::<OnUpgrade>();
    let upgrade_handling = match role {
        ProxyRole::Gateway => UpgradeHandling::Honored,
        ProxyRole::Proxy => UpgradeHandling::Ignored,
    };
    let (upstream_head, content, extensions) =
        head::validate_request(parts, body, host, upgrade_handling)?;
    let kind = match upstream_head.upgrade {
        _ if is_final_recipient => ExchangeKind::FinalRecipient,
        UpgradeKind::None => {
            let expects_continue = !content.is_empty() && upstream_head.fields.contains_key(EXPECT);
            let announced_length = content.remaining();
            let content = content.map(|body| Upload::new(body, announced_length, expects_continue));
            ExchangeKind::Ordinary { content, informational, extensions }
        }
        UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) | UpgradeKind::Connect => {
            ExchangeKind::Upgrade(Box::new(DownstreamParts {
                body: content.into_body(),
                on_upgrade,
            }))
        }
    };
    Ok(ValidRequest { upstream_head: Box::new(upstream_head), kind, role })
}

/// Returns the response to an OPTIONS or TRACE request that must not be forwarded.
fn final_recipient_response(method: &Method) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if *method == Method::OPTIONS {
        StatusCode::NO_CONTENT
    } else {
        // A trace would contain the client's credentials.
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("OPTIONS"));
        StatusCode::METHOD_NOT_ALLOWED
    };
    response
}

impl ValidRequest {
    /// Sends the request to one of the upstream's servers.
    pub(crate) async fn send(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &TunnelRegistry,
    ) -> Response<Body> {
        let result = self.exchange(upstream, client, tunnels).await;
        result.unwrap_or_else(|failure| report_failure(failure, upstream, client))
    }

    /// Like [`Self::send`], but returns failures, for callers that build their own responses.
    pub(crate) async fn exchange(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &TunnelRegistry,
    ) -> Result<Response<Body>, ProxyError> {
        let mut response = match self.kind {
            ExchangeKind::Ordinary { content, informational, extensions } => {
                let ordinary =
                    OrdinaryExchange { upstream, client, content, informational, role: self.role };
                ordinary.run(self.upstream_head, extensions).await?
            }
            ExchangeKind::Upgrade(downstream) => {
                let DownstreamParts { body, on_upgrade } = *downstream;
                let upgrade = UpgradeExchange { upstream, client, body, on_upgrade, tunnels };
                Box::pin(upgrade.run(*self.upstream_head)).await?
            }
            ExchangeKind::FinalRecipient => {
                return Ok(final_recipient_response(&self.upstream_head.method));
            }
        };
        // The client's version is that of its connection.
        let version = std::mem::take(response.version_mut());
        self.role.add_via(response.headers_mut(), version);
        Ok(response)
    }
}

impl ProxyRole {
    /// Adds a forward proxy's entry in Via to a response that was received in this version. A gateway adds none.
    pub(super) fn add_via(self, headers: &mut HeaderMap, version: Version) {
        if self == Self::Proxy {
            headers.append(VIA, head::via(version));
        }
    }
}
