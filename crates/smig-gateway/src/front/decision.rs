//! What becomes of a request: decided at once, before anything is waited for. A request's future keeps room for
//! all that it ever holds, and there is one for each request that runs.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use smig::{ConnectionInfo, Incoming, Protocol};

use super::table::{Action, Table};
use super::{
    authority, forwarded, is_forwarded, path, prepare, redirect, routes, scheme_of, short, to_https,
};
use crate::admin::Watch;
use crate::admin::span::RequestSpan;
use crate::proxy::{self, Admitted, Body};
use crate::tls;
use crate::upstream::Upstream;

/// Who answers, and what is known of it.
pub(super) struct Decision {
    pub(super) next: Next,
    /// The route that was taken: its place in the table.
    pub(super) target: Option<usize>,
    pub(super) span: Option<RequestSpan>,
}

/// Who answers.
pub(super) enum Next {
    /// We.
    Own(Box<Response<Body>>),
    /// Another host, by the forward proxy.
    Forward(Pin<Box<dyn Future<Output = Response<Body>>>>),
    Upstream {
        admitted: Admitted,
        upstream: Arc<Upstream>,
        client: SocketAddr,
    },
}

impl Decision {
    /// An answer of our own to what no route is for.
    fn short(status: StatusCode, text: &'static str) -> Self {
        Self::own(short(status, text))
    }

    fn own(response: Response<Body>) -> Self {
        Self { next: Next::Own(Box::new(response)), target: None, span: None }
    }
}

/// Decides by the table.
pub(super) fn decide(
    table: &Table,
    watch: Option<&Watch>,
    last: &mut forwarded::Last,
    mut request: Request<Incoming>,
) -> Decision {
    let Some(info) = request.extensions().get::<Arc<ConnectionInfo>>().cloned() else {
        return Decision::short(StatusCode::INTERNAL_SERVER_ERROR, "no connection\n");
    };
    let Ok(authority) = authority(&request) else {
        return Decision::short(StatusCode::BAD_REQUEST, "one host is needed\n");
    };
    if let Some(forward) = &table.forward
        && is_forwarded(&request, table, &info, authority.as_ref())
    {
        let span = watch.map(|watch| RequestSpan::forwarded(&request, watch));
        if let Some(span) = &span {
            span.tell(request.headers_mut());
        }
        let forward = Arc::clone(forward);
        let answering = async move { forward.answer(request, tls::subject(&info)).await };
        return Decision { next: Next::Forward(Box::pin(answering)), target: None, span };
    }
    if *request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_none() {
        return Decision::short(StatusCode::METHOD_NOT_ALLOWED, "this is no forward proxy\n");
    }
    if let Some(authority) = &authority
        && !info.serves(authority)
    {
        return Decision::short(StatusCode::MISDIRECTED_REQUEST, "not a name of this connection\n");
    }
    if let Some(port) = table.https_port(info.local_addr().port()) {
        return Decision::own(to_https(authority.as_ref(), request.uri(), port));
    }
    let path = path(request.uri());
    if routes::has_dot_segments(path) {
        return Decision::short(StatusCode::BAD_REQUEST, "dot segments in the path\n");
    }
    let found = table.find(authority.as_ref(), path);
    let Some((number, target)) = found.and_then(|number| Some((number, table.target(number)?)))
    else {
        return Decision::short(StatusCode::NOT_FOUND, "nothing is here\n");
    };
    let span =
        watch.map(|watch| RequestSpan::begin(&request, authority.as_ref(), &target.path, watch));
    let own = |response| Next::Own(Box::new(response));
    let next = match &target.action {
        Action::Answer { status, text } => own(short(*status, text.clone())),
        Action::Redirect { to, status } => own(redirect(to, *status, request.uri())),
        Action::Upstream { upstream, name, replace } => {
            let scheme = scheme_of(&info);
            let host = authority.as_ref().and_then(|authority| last.host(authority));
            let Some(client) = last.client(info.peer_addr()) else {
                return Decision::short(StatusCode::INTERNAL_SERVER_ERROR, "no client\n");
            };
            let tell = |headers: &mut HeaderMap| {
                forwarded::tell(&table.forwarded, headers, client, scheme, host.as_ref());
                if let Some(span) = &span {
                    span.tell(headers);
                }
            };
            let request = match prepare(target, replace.as_deref(), request, tell) {
                Ok(request) => request,
                Err(why) => {
                    let next = own(short(StatusCode::BAD_REQUEST, why));
                    return Decision { next, target: None, span };
                }
            };
            if let Some(span) = &span {
                span.sent_to(name);
            }
            let client = info.peer_addr();
            match proxy::admit(request, host) {
                Ok(admitted) => Next::Upstream { admitted, upstream: Arc::clone(upstream), client },
                Err(failure) => own(failure.answer(upstream, client)),
            }
        }
    };
    Decision { next, target: Some(number), span }
}
