//! The service that a gateway answers with: an upstream, the forward proxy, or an answer of its own;
//! and the gateway that runs it.

pub mod access_log;
mod decision;
mod forwarded;
mod headers;
mod keeper;
mod report;
mod routes;
mod running;
mod spanned;
mod table;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION,
    PROXY_AUTHORIZATION,
};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use smig::{ConnectionInfo, Incoming, Protocol};
use smig_settings::Faults;
use tower_service::Service;

pub use headers::HeaderRules;
pub use routes::HostPattern;
pub use running::{Gateway, GatewayError, Renewals};

pub(crate) use routes::Routes;
pub(crate) use table::Table;

use access_log::{Counted, counted};
use decision::{Next, decide};
use spanned::spanned;
use table::{Action, Target};

use crate::admin::Watch;
use crate::config::Config;
use crate::proxy::{Body, grpc};

/// Whether upstreams and users of a configuration can be used.
pub(crate) fn check(config: &Config) -> Result<(), Faults> {
    table::Kept::none().next(config).map(drop)
}

/// Answers requests by the table of the moment. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    table: Arc<RwLock<Arc<Table>>>,
    /// Who follows the requests, if somebody does.
    watch: Option<Arc<Watch>>,
    /// Of the last request: each connection has a clone of its own.
    last: forwarded::Last,
}

impl Front {
    pub(crate) fn new(table: Table, watch: Option<Arc<Watch>>) -> Self {
        Self {
            table: Arc::new(RwLock::new(Arc::new(table))),
            watch,
            last: forwarded::Last::default(),
        }
    }

    /// Answers by another table from the next request on.
    pub(crate) fn swap(&self, table: Table) {
        let table = Arc::new(table);
        // The old one is dropped outside of the lock.
        let _old = {
            let mut current = self.table.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, table)
        };
    }

    fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service<Request<Incoming>> for Front {
    type Response = Response<Counted<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let table = self.table();
        let mut entry = table.log.begin(&request);
        // Calls are POST; to CONNECT 200 would mean that there is a tunnel.
        let is_grpc = *request.method() == Method::POST && grpc::is_grpc(request.headers());
        let decision = decide(&table, self.watch.as_deref(), &mut self.last, request);
        Box::pin(async move {
            let mut response = match decision.next {
                Next::Own(response) => *response,
                Next::Forward(answering) => answering.await,
                Next::Upstream { admitted, upstream, client } => {
                    admitted.send(&upstream, client, &table.tunnels).await
                }
            };
            if let Some(span) = decision.span {
                span.answered(response.status());
                response = spanned(response, span);
            }
            if let Some(target) = decision.target.and_then(|target| table.target(target)) {
                target.response.apply(response.headers_mut());
                if target.hint != smig::Hint::None {
                    response.extensions_mut().insert(target.hint);
                }
                if let (Some(entry), Action::Upstream { name, .. }) = (&mut entry, &target.action) {
                    entry.answered_by(name);
                }
            }
            let response = if is_grpc { for_grpc(response) } else { response };
            Ok(counted(response, entry))
        })
    }
}

/// What we refuse ourselves, as the client of a call reads it. What a server answers stays as it is.
fn for_grpc(mut response: Response<Body>) -> Response<Body> {
    let Some(text) = response.body().own_text() else { return response };
    let mut message = String::from_utf8_lossy(text).trim_end().to_owned();
    let kind = response.headers().get("proxy-status").and_then(|value| value.to_str().ok());
    if let Some(kind) =
        kind.and_then(|kind| kind.split("; ").find_map(|part| part.strip_prefix("error=")))
    {
        let _ = write!(message, " ({kind})");
    }
    if grpc::translate(&mut response, &message) {
        *response.body_mut() = Body::empty();
    }
    response
}

/// An answer of our own.
fn short(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::text(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What the request is for: HTTP/2's authority, or that of the target, or Host.
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

/// The path; that of the whole host for `OPTIONS *`.
fn path(uri: &Uri) -> &str {
    if uri.path().starts_with('/') { uri.path() } else { "/" }
}

/// Whether a request is for another host than this one.
fn is_forwarded<B>(
    request: &Request<B>,
    table: &Table,
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
    if table.names(authority.host()) {
        return false;
    }
    // Only a proxy's clients write HTTP/1.1 with a whole URL.
    request.version() < Version::HTTP_2 || scheme != scheme_of(info) || !info.serves(authority)
}

fn scheme_of(info: &ConnectionInfo) -> &'static str {
    if info.tls().is_some() { "https" } else { "http" }
}

fn to_https(authority: Option<&Authority>, uri: &Uri, port: u16) -> Response<Body> {
    let Some(authority) = authority else {
        return short(StatusCode::BAD_REQUEST, "this needs https, and a host\n");
    };
    let mut to = format!("https://{}", authority.host());
    if port != 443 {
        let _ = write!(to, ":{port}");
    }
    redirect(&to, StatusCode::PERMANENT_REDIRECT, uri)
}

/// Redirects to a URL with the request's path and query behind it.
fn redirect(to: &str, status: StatusCode, uri: &Uri) -> Response<Body> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = if path == "*" { "/" } else { path };
    let place = format!("{}{path}", to.trim_end_matches('/'));
    let mut response = short(status, format!("{place}\n"));
    match HeaderValue::try_from(place) {
        Ok(place) => drop(response.headers_mut().insert(LOCATION, place)),
        Err(_) => return short(StatusCode::BAD_REQUEST, "the path is no path\n"),
    }
    response
}

/// Makes of the client's request the one for the upstream.
fn prepare(
    target: &Target,
    replace: Option<&str>,
    mut request: Request<Incoming>,
    tell: impl FnOnce(&mut HeaderMap),
) -> Result<Request<Incoming>, &'static str> {
    // Whoever could call our fields a matter of one hop could take them away.
    if names_ours(request.headers(), &target.request) {
        return Err("connection names a field of the gateway's\n");
    }
    tell(request.headers_mut());
    target.request.apply(request.headers_mut());
    if let Some(replace) = replace.filter(|_| request.uri().path() != "*") {
        let uri = other_path(request.uri(), target.path.len(), replace).ok_or("a bad path\n")?;
        *request.uri_mut() = uri;
    }
    Ok(request)
}

fn names_ours(headers: &HeaderMap, rules: &HeaderRules) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut options = values.flat_map(|value| value.split(',')).map(str::trim);
    options.any(|option| forwarded::is_ours(option) || rules.name(option))
}

/// The URI with `replace` in the place of the first octets of its path.
fn other_path(uri: &Uri, prefix: usize, replace: &str) -> Option<Uri> {
    let whole = uri.path_and_query()?.as_str();
    let rest = whole.get(prefix..)?;
    let slash = !replace.ends_with('/') && !rest.is_empty() && !rest.starts_with(['/', '?']);
    let rest = if replace.ends_with('/') { rest.strip_prefix('/').unwrap_or(rest) } else { rest };
    let path = format!("{replace}{}{rest}", if slash { "/" } else { "" });
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.try_into().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_replaced() {
        let other = |uri: &str, prefix: &str, replace: &str| {
            other_path(&uri.parse().unwrap(), prefix.len(), replace).unwrap().to_string()
        };
        assert_eq!(other("https://a/api/x?y", "/api", "/v2"), "https://a/v2/x?y");
        assert_eq!(other("/api/x", "/api/", "/"), "/x");
        assert_eq!(other("/api/x", "/api/", "/v2"), "/v2/x");
        assert_eq!(other("/api", "/api", "/"), "/");
        assert_eq!(other("/api/x", "/api", "/"), "/x");
        assert_eq!(other("/api?q", "/api", "/v2"), "/v2?q");
    }

    #[test]
    fn a_request_has_one_host() {
        let of = |request: http::request::Builder| authority(&request.body(()).unwrap());
        let shown = |request| of(request).map(|a| a.map(|a| a.to_string()));
        assert_eq!(shown(Request::get("/").header(HOST, "a:1")), Ok(Some("a:1".to_owned())));
        assert_eq!(shown(Request::get("http://b/").header(HOST, "a")), Ok(Some("b".to_owned())));
        assert_eq!(shown(Request::get("/")), Err(()));
        assert_eq!(shown(Request::get("/").version(Version::HTTP_10)), Ok(None));
        assert_eq!(shown(Request::get("/").header(HOST, "a").header(HOST, "a")), Err(()));
        assert_eq!(shown(Request::get("/").header(HOST, "a b")), Err(()));
        assert_eq!(shown(Request::get("/").header(HOST, "x@a")), Err(()));
    }
}
