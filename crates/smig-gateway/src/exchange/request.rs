//! A request that was checked: what the exchange needs to know of it, by its kind.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{ALLOW, EXPECT, VIA};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use smig::{Incoming, InformationalSender};
use smig_proxy::ProxyError;
use smig_proxy::framing::{self, Content};
use smig_proxy::head::{self, UpgradeHandling, UpgradeKind, UpstreamHead};
use smig_proxy::tunnel::Tunnels;
use smig_proxy::upload::Upload;

use super::answer::answer;
use super::body::Body;
use super::plain::PlainExchange;
use super::switch::UpgradeExchange;
use crate::upstream::Upstream;

/// A checked request for an upstream, without hop-by-hop fields.
///
/// It is part of the future of each active request: large parts are boxed.
#[derive(Debug)]
pub(crate) struct ValidRequest {
    upstream_head: Box<UpstreamHead>,
    kind: ExchangeKind,
    role: Role,
}

/// What this program is for a request (RFC 9110 section 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A reverse proxy.
    Gateway,
    /// A forward proxy, which adds Via to requests and responses.
    Proxy,
}

/// What belongs to a request, by its kind.
#[derive(Debug)]
enum ExchangeKind {
    Usual {
        content: Content<Upload>,
        informational: Option<InformationalSender>,
        extensions: Extensions,
    },
    Switch(Box<Downstream>),
    /// The request must not be forwarded.
    Last,
}

/// The client's end of a request that switches protocols.
#[derive(Debug)]
struct Downstream {
    /// The client's data on its stream, over HTTP/2.
    body: Incoming,
    /// The client's connection, over HTTP/1.1.
    on_upgrade: Option<OnUpgrade>,
}

/// Checks a request of the reverse proxy, which adds no Via: nginx, as an upstream, compresses no response to a
/// request that has it (`gzip_proxied`). `host` is its URI's authority as a field value, if
/// that exists already.
pub(crate) fn admit(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
) -> Result<ValidRequest, ProxyError> {
    admit_as(request, host, Role::Gateway)
}

/// Checks a request of the forward proxy, which gets a response and cannot switch protocols.
pub(crate) fn admit_forwarded(mut request: Request<Incoming>) -> Result<ValidRequest, ProxyError> {
    let via = head::via(request.version());
    head::check_expect(request.headers())?;
    // The gateway's own server sends 100.
    request.headers_mut().remove(EXPECT);
    let mut admitted = admit_as(request, None, Role::Proxy)?;
    admitted.upstream_head.fields.set(framing::ProxyField::Via, via);
    Ok(admitted)
}

fn admit_as(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
    role: Role,
) -> Result<ValidRequest, ProxyError> {
    let (mut parts, body) = request.into_parts();
    let is_last = head::decrement_max_forwards(&parts.method, &mut parts.headers)?;
    let informational = parts.extensions.remove::<InformationalSender>();
    let on_upgrade = parts.extensions.remove::<OnUpgrade>();
    let upgrades = match role {
        Role::Gateway => UpgradeHandling::Honored,
        Role::Proxy => UpgradeHandling::Ignored,
    };
    let (upstream_head, content, extensions) = head::validate_request(parts, body, host, upgrades)?;
    let kind = match upstream_head.upgrade {
        _ if is_last => ExchangeKind::Last,
        UpgradeKind::None => {
            let expects = upstream_head.fields.contains_key(EXPECT);
            let announced = content.remaining();
            let content = content.map(|body| Upload::new(body, announced, expects));
            ExchangeKind::Usual { content, informational, extensions }
        }
        UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) | UpgradeKind::Connect => {
            ExchangeKind::Switch(Box::new(Downstream { body: content.into_body(), on_upgrade }))
        }
    };
    Ok(ValidRequest { upstream_head: Box::new(upstream_head), kind, role })
}

/// Returns the response to an OPTIONS or TRACE request that must not be forwarded.
fn answer_as_last(method: &Method) -> Response<Body> {
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
    /// Sends the request, like [`exchange`].
    pub(crate) async fn send(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Response<Body> {
        let answered = self.exchange(upstream, client, tunnels).await;
        answered.unwrap_or_else(|failure| answer(failure, upstream, client))
    }

    /// Like [`Self::send`], but returns failures, for callers that build their own responses.
    pub(crate) async fn exchange(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Result<Response<Body>, ProxyError> {
        let mut response = match self.kind {
            ExchangeKind::Usual { content, informational, extensions } => {
                let usual =
                    PlainExchange { upstream, client, content, informational, role: self.role };
                usual.run(self.upstream_head, extensions).await?
            }
            ExchangeKind::Switch(downstream) => {
                let Downstream { body, on_upgrade } = *downstream;
                let switch = UpgradeExchange { upstream, client, body, on_upgrade, tunnels };
                Box::pin(switch.run(*self.upstream_head)).await?
            }
            ExchangeKind::Last => return Ok(answer_as_last(&self.upstream_head.method)),
        };
        // The client's version is that of its connection.
        let version = std::mem::take(response.version_mut());
        self.role.add_via(response.headers_mut(), version);
        Ok(response)
    }
}

impl Role {
    /// Adds the entry in Via to a response that was received in this version.
    pub(super) fn add_via(self, headers: &mut HeaderMap, version: Version) {
        if self == Self::Proxy {
            headers.append(VIA, head::via(version));
        }
    }
}
