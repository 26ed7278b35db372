//! Requests as they are sent, in the form of HTTP/1.1 or HTTP/2.

use http::header::{CONNECTION, HOST, HeaderMap, HeaderValue, TE, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};
use smig::Protocol;

use super::hop_by_hop::PresentFields;
use super::{UpgradeKind, UpstreamHead};
use crate::ProxyError;
use crate::framing::Content;

/// Returns the authority of a request, as a field value.
fn authority(upstream_head: &UpstreamHead) -> Result<HeaderValue, ProxyError> {
    if let Some(host) = &upstream_head.host {
        return Ok(host.clone());
    }
    match (upstream_head.uri.authority(), upstream_head.fields.get(HOST)) {
        (Some(authority), _) => HeaderValue::from_str(authority.as_str())
            .map_err(|_| ProxyError::BadRequest("invalid authority")),
        (None, Some(host)) => Ok(host.clone()),
        (None, None) => Err(ProxyError::BadRequest("no authority")),
    }
}

/// Returns the request in HTTP/1.1's form: the path as target, the authority in Host.
pub fn into_http1_request<B: http_body::Body>(
    upstream_head: UpstreamHead,
    content: Content<B>,
) -> Result<Request<Content<B>>, ProxyError> {
    let present_fields = PresentFields::of(&upstream_head.fields);
    let host = match present_fields.has(PresentFields::HOST) {
        true => None,
        false => Some(authority(&upstream_head)?),
    };
    let UpstreamHead { mut method, uri, fields, upgrade, .. } = upstream_head;
    let mut headers = fields.into_headers();
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    let target = match &upgrade {
        UpgradeKind::Connect => uri,
        UpgradeKind::None | UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) => {
            origin_form(uri)
        }
    };
    if let UpgradeKind::Upgrade(protocol) | UpgradeKind::ExtendedConnect(protocol) = &upgrade {
        method = Method::GET;
        headers.remove(TE);
        add_upgrade(&mut headers, protocol);
    } else if present_fields.has(PresentFields::TE) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    content.insert_framing_field(&method, &mut headers);
    let mut request = Request::new(content);
    *request.method_mut() = method;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sets the fields for a switch to another protocol.
pub fn add_upgrade(headers: &mut HeaderMap, protocol: &Protocol) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Ok(protocol) = HeaderValue::from_str(protocol.as_str()) {
        headers.insert(UPGRADE, protocol);
    }
}

fn origin_form(uri: Uri) -> Uri {
    match uri.into_parts().path_and_query {
        Some(path) => Uri::from(path),
        None => Uri::from_static("/"),
    }
}

/// Returns the request in the form for a [`smig::Client`], with an absolute URI.
pub fn into_http2_request<B: http_body::Body>(
    upstream_head: UpstreamHead,
    scheme: &Scheme,
    content: Content<B>,
) -> Result<Request<Content<B>>, ProxyError> {
    let host = authority(&upstream_head)?;
    let UpstreamHead { method, uri, fields, upgrade, .. } = upstream_head;
    let mut headers = fields.into_headers();
    content.insert_content_length(&method, &mut headers);
    let mut parts = uri.into_parts();
    if parts.authority.is_none() {
        let host = Authority::try_from(host.as_bytes());
        parts.authority = Some(host.map_err(|_| ProxyError::BadRequest("invalid host"))?);
    }
    let mut request = Request::new(content);
    *request.method_mut() = method;
    if upgrade == UpgradeKind::Connect {
        (parts.scheme, parts.path_and_query) = (None, None);
    } else {
        parts.scheme = Some(scheme.clone());
        parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    }
    *request.uri_mut() =
        Uri::from_parts(parts).map_err(|_| ProxyError::BadRequest("invalid target"))?;
    *request.headers_mut() = headers;
    if let UpgradeKind::ExtendedConnect(protocol) | UpgradeKind::Upgrade(protocol) = upgrade {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(protocol);
    }
    Ok(request)
}

/// Returns the Via entry for a message that was received in this version (RFC 9110 section 7.6.3).
pub fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 smig",
        Version::HTTP_2 => "2 smig",
        _ => "1.1 smig",
    })
}
