//! Decides how a request is answered, before anything is awaited: a future reserves space for
//! everything that it holds across an await, and there is one per active request.

use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION,
    PROXY_AUTHORIZATION,
};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use smig::{BulkHint, ConnectionInfo, Incoming, Protocol};
use smig_admin::spans::{OpenSpans, RequestSpan};

use super::active_config::{Action, ActiveConfig, CompiledRoute};
use super::{forwarded, routes};
use crate::config::HeaderRules;
use crate::exchange::{self, Body, ValidRequest};
use crate::forward_proxy::ForwardProxy;
use crate::tls;
use crate::upstream::Upstream;

/// How a request is answered.
pub(super) struct Decision {
    pub(super) responder: Responder,
    /// Index of the route in the configuration.
    pub(super) route_index: Option<usize>,
    pub(super) span: Option<RequestSpan>,
}

/// What answers a request.
pub(super) enum Responder {
    /// The gateway itself.
    Direct(Box<Response<Body>>),
    /// Another host, through the forward proxy.
    Forward(Pin<Box<dyn Future<Output = Response<Body>>>>),
    Upstream {
        request: ValidRequest,
        upstream: Arc<Upstream>,
        client: SocketAddr,
    },
}

impl Decision {
    /// A response of the gateway's own, without a route.
    fn text(status: StatusCode, text: &'static str) -> Self {
        Self::direct(text_response(status, text))
    }

    fn direct(response: Response<Body>) -> Self {
        Self { responder: Responder::Direct(Box::new(response)), route_index: None, span: None }
    }
}

/// Returns the decision for a request to the forward proxy.
fn by_forward_proxy(
    forward_proxy: &Arc<ForwardProxy>,
    spans: Option<&OpenSpans>,
    mut request: Request<Incoming>,
    info: Arc<ConnectionInfo>,
) -> Decision {
    let span = spans.map(|spans| RequestSpan::for_forward_proxy(&request, spans));
    if let Some(span) = &span {
        span.inject(request.headers_mut());
    }
    let forward_proxy = Arc::clone(forward_proxy);
    let response =
        async move { forward_proxy.serve(request, tls::client_common_name(&info)).await };
    Decision { responder: Responder::Forward(Box::pin(response)), route_index: None, span }
}

/// Decides how the configuration answers a request.
pub(super) fn decide(
    config: &ActiveConfig,
    spans: Option<&OpenSpans>,
    field_cache: &mut forwarded::FieldCache,
    mut request: Request<Incoming>,
) -> Decision {
    let Some(info) = request.extensions().get::<Arc<ConnectionInfo>>().cloned() else {
        return Decision::text(StatusCode::INTERNAL_SERVER_ERROR, "no connection\n");
    };
    // Normalize first: the path that is checked here must be the path that is sent.
    *request.uri_mut() = with_path(std::mem::take(request.uri_mut()));
    let Ok(authority) = authority(&request) else {
        return Decision::text(StatusCode::BAD_REQUEST, "exactly one host is required\n");
    };
    if let Some(forward_proxy) = &config.forward_proxy
        && is_for_forward_proxy(&request, config, &info, authority.as_ref())
    {
        return by_forward_proxy(forward_proxy, spans, request, info);
    }
    if *request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_none() {
        return Decision::text(
            StatusCode::METHOD_NOT_ALLOWED,
            "this server is not a forward proxy\n",
        );
    }
    if let Some(authority) = &authority
        && !info.serves(authority)
    {
        return Decision::text(
            StatusCode::MISDIRECTED_REQUEST,
            "this connection does not serve that host\n",
        );
    }
    if let Some(port) = info.listener().and_then(|listener| config.https_port(listener)) {
        return Decision::direct(redirect_to_https(authority.as_ref(), request.uri(), port));
    }
    let path = path(request.uri());
    if routes::has_dot_segments(path) {
        return Decision::text(StatusCode::BAD_REQUEST, "the path has dot segments\n");
    }
    let Some((route_index, route)) = config.find(authority.as_ref(), path) else {
        return Decision::text(StatusCode::NOT_FOUND, "no route matches\n");
    };
    let span =
        spans.map(|spans| RequestSpan::for_route(&request, authority.as_ref(), &route.path, spans));
    hint_upload(&request, route.bulk_hint);
    let direct = |response| Responder::Direct(Box::new(response));
    let responder = match &route.action {
        Action::FixedResponse { status, text } => {
            direct(route_response(request.method(), *status, text))
        }
        Action::Redirect { base_url, status } => direct(redirect(base_url, *status, request.uri())),
        Action::Upstream { upstream, name, prefix_rewrite } => {
            let scheme = scheme_of(&info);
            let host = authority.as_ref().and_then(|authority| field_cache.host(authority));
            let Some(peer) = field_cache.peer(info.peer_addr()) else {
                return Decision::text(StatusCode::INTERNAL_SERVER_ERROR, "no client address\n");
            };
            let set_fields = |headers: &mut HeaderMap| {
                forwarded::set_forwarded(&config.forwarded, headers, peer, scheme, host.as_ref());
                if let Some(span) = &span {
                    span.inject(headers);
                }
            };
            let request = match prepare(route, prefix_rewrite.as_deref(), request, set_fields) {
                Ok(request) => request,
                Err(why) => {
                    let responder = direct(text_response(StatusCode::BAD_REQUEST, why));
                    return Decision { responder, route_index: None, span };
                }
            };
            if let Some(span) = &span {
                span.set_upstream(name);
            }
            let client = info.peer_addr();
            match exchange::validate(request, host) {
                Ok(request) => {
                    Responder::Upstream { request, upstream: Arc::clone(upstream), client }
                }
                Err(failure) => direct(exchange::report_failure(failure, upstream, client)),
            }
        }
    };
    Decision { responder, route_index: Some(route_index), span }
}

/// Applies the route's hint to the request's body; that of the response follows with the response.
fn hint_upload(request: &Request<Incoming>, hint: BulkHint) {
    if hint != BulkHint::None
        && let Some(body) = request.body().stream_info()
    {
        body.set_incoming_bulk_hint(hint);
    }
}

/// Returns a route's fixed response. To an extended CONNECT, 2xx would mean that the tunnel is open
/// (RFC 8441 section 5).
fn route_response(method: &Method, status: StatusCode, text: &Bytes) -> Response<Body> {
    if *method == Method::CONNECT && status.is_success() {
        return text_response(StatusCode::NOT_IMPLEMENTED, "this route opens no tunnel\n");
    }
    text_response(status, text.clone())
}

/// Creates a response of the gateway's own.
fn text_response(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::text(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the request's authority: that of the target URI (over HTTP/2, `:authority`), or Host.
fn authority<B>(request: &Request<B>) -> Result<Option<Authority>, ()> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if host.is_empty() => Ok(None),
        (Some(host), None) => {
            let authority = Authority::try_from(host.as_bytes()).map_err(drop)?;
            if authority.as_str().contains('@') { Err(()) } else { Ok(Some(authority)) }
        }
        (None, _) if request.version() == Version::HTTP_11 => Err(()),
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Returns the path; `/` for `OPTIONS *`.
fn path(uri: &Uri) -> &str {
    if uri.path().starts_with('/') { uri.path() } else { "/" }
}

/// Adds the path `/` to a URI with a query and no path, such as `http://a?x`, which `http` leaves as it is (RFC 9110
/// section 4.2.3). Otherwise `Uri::path` and the text of `Uri::path_and_query` would disagree.
fn with_path(uri: Uri) -> Uri {
    if !uri.path_and_query().is_some_and(|path_and_query| path_and_query.as_str().starts_with('?'))
    {
        return uri;
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = parts.path_and_query.and_then(|path_and_query| {
        PathAndQuery::try_from(format!("/{}", path_and_query.as_str())).ok()
    });
    Uri::from_parts(parts).unwrap_or(uri)
}

/// Returns whether a request is for the forward proxy.
fn is_for_forward_proxy<B>(
    request: &Request<B>,
    config: &ActiveConfig,
    info: &ConnectionInfo,
    authority: Option<&Authority>,
) -> bool {
    if *request.method() == Method::CONNECT {
        return request.extensions().get::<Protocol>().is_none();
    }
    let Some(scheme) = request.uri().scheme_str() else { return false };
    let Some(authority) = authority else { return false };
    if request.headers().contains_key(PROXY_AUTHORIZATION) {
        return true;
    }
    if config.has_host(authority.host()) {
        return false;
    }
    // HTTP/1.1 requests with an absolute URI are sent only by clients of a proxy.
    request.version() < Version::HTTP_2 || scheme != scheme_of(info) || !info.serves(authority)
}

fn scheme_of(info: &ConnectionInfo) -> &'static str {
    if info.tls().is_some() { "https" } else { "http" }
}

fn redirect_to_https(authority: Option<&Authority>, uri: &Uri, port: u16) -> Response<Body> {
    let Some(authority) = authority else {
        return text_response(
            StatusCode::BAD_REQUEST,
            "https is required, but there is no host to redirect to\n",
        );
    };
    let mut base_url = format!("https://{}", authority.host());
    if port != 443 {
        let _ = write!(base_url, ":{port}");
    }
    redirect(&base_url, StatusCode::PERMANENT_REDIRECT, uri)
}

/// Redirects to a URL with the request's path and query appended.
fn redirect(base_url: &str, status: StatusCode, uri: &Uri) -> Response<Body> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = if path == "*" { "/" } else { path };
    let location = format!("{}{path}", base_url.trim_end_matches('/'));
    let mut response = text_response(status, format!("{location}\n"));
    match HeaderValue::try_from(location) {
        Ok(location) => drop(response.headers_mut().insert(LOCATION, location)),
        Err(_) => return text_response(StatusCode::BAD_REQUEST, "invalid path\n"),
    }
    response
}

/// Turns the client's request into the one for the upstream.
fn prepare(
    route: &CompiledRoute,
    replacement: Option<&str>,
    mut request: Request<Incoming>,
    set_fields: impl FnOnce(&mut HeaderMap),
) -> Result<Request<Incoming>, &'static str> {
    // Fields that Connection names are removed as hop-by-hop: a client could remove the gateway's own.
    if lists_gateway_field(request.headers(), &route.request_rules) {
        return Err("connection names a field that the gateway sets\n");
    }
    if request.headers().keys().any(|name| route.request_rules.is_imitated_by(name)) {
        return Err("a field name differs only by _ from one that the gateway sets\n");
    }
    set_fields(request.headers_mut());
    route.request_rules.apply(request.headers_mut());
    if let Some(replacement) = replacement.filter(|_| request.uri().path() != "*") {
        let uri =
            rewrite_path(request.uri(), route.path.len(), replacement).ok_or("invalid path\n")?;
        *request.uri_mut() = uri;
    }
    Ok(request)
}

fn lists_gateway_field(headers: &HeaderMap, rules: &HeaderRules) -> bool {
    if !headers.keys().any(|name| *name == CONNECTION) {
        return false;
    }
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut options = values.flat_map(|value| value.split(',')).map(str::trim);
    options.any(|option| forwarded::is_forwarding_field(option) || rules.has_rule_for(option))
}

/// Replaces the first `prefix_bytes` bytes of the URI's path with `replacement`.
fn rewrite_path(uri: &Uri, prefix_bytes: usize, replacement: &str) -> Option<Uri> {
    let path_and_query = uri.path_and_query()?.as_str();
    let rest = path_and_query.get(prefix_bytes..)?;
    let needs_slash =
        !replacement.ends_with('/') && !rest.is_empty() && !rest.starts_with(['/', '?']);
    let rest =
        if replacement.ends_with('/') { rest.strip_prefix('/').unwrap_or(rest) } else { rest };
    let path = format!("{replacement}{}{rest}", if needs_slash { "/" } else { "" });
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.try_into().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_prefixes_are_rewritten() {
        let rewrite = |uri: &str, prefix: &str, replace: &str| {
            rewrite_path(&uri.parse().unwrap(), prefix.len(), replace).unwrap().to_string()
        };
        assert_eq!(rewrite("https://a/api/x?y", "/api", "/v2"), "https://a/v2/x?y");
        assert_eq!(rewrite("/api/x", "/api/", "/"), "/x");
        assert_eq!(rewrite("/api/x", "/api/", "/v2"), "/v2/x");
        assert_eq!(rewrite("/api", "/api", "/"), "/");
        assert_eq!(rewrite("/api/x", "/api", "/"), "/x");
        assert_eq!(rewrite("/api?q", "/api", "/v2"), "/v2?q");
    }

    #[test]
    fn a_query_without_a_path_gets_the_path_slash() {
        for (input, expected) in [
            ("http://a?x=1", "/?x=1"),
            ("http://a?../x", "/?../x"),
            ("http://a", "/"),
            ("http://a/?x", "/?x"),
            ("/y?x", "/y?x"),
        ] {
            let uri = with_path(input.parse().unwrap());
            assert_eq!(uri.path_and_query().unwrap().as_str(), expected, "{input}");
            assert_eq!(uri.authority().is_some(), input.starts_with("http"), "{input}");
        }
        assert_eq!(with_path("a:1".parse().unwrap()), "a:1");
        assert_eq!(with_path("*".parse().unwrap()), "*");
    }

    #[test]
    fn exactly_one_host_is_required() {
        let authority_of = |request: http::request::Builder| authority(&request.body(()).unwrap());
        let authority_text = |request| authority_of(request).map(|a| a.map(|a| a.to_string()));
        assert_eq!(
            authority_text(Request::get("/").header(HOST, "a:1")),
            Ok(Some("a:1".to_owned()))
        );
        assert_eq!(
            authority_text(Request::get("http://b/").header(HOST, "a")),
            Ok(Some("b".to_owned()))
        );
        assert_eq!(authority_text(Request::get("/")), Err(()));
        assert_eq!(authority_text(Request::get("/").version(Version::HTTP_10)), Ok(None));
        assert_eq!(authority_text(Request::get("/").header(HOST, "a").header(HOST, "a")), Err(()));
        assert_eq!(authority_text(Request::get("/").header(HOST, "a b")), Err(()));
        assert_eq!(authority_text(Request::get("/").header(HOST, "x@a")), Err(()));
    }
}
