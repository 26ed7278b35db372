//! Requests to `http://` origins: HTTP/1.1, or HTTP/2 with prior knowledge where the client asks for it.
//!
//! Connections that wait for the next request are kept by thread, and belong to the address that was
//! checked when they were made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use http::header::{EXPECT, HOST, PROXY_AUTHENTICATE};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use smig::{Incoming, Interim};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout};

use super::NEXT_PROTOCOL;
use super::dial::{self, Target};
use super::failure::Failure;
use super::rules::Rules;
use super::spec::ForwardSpec;
use crate::proxy::framing::{self, Content, Own};
use crate::proxy::head::{self, Upgrades};

/// How long an unused connection is kept.
const KEPT: Duration = Duration::from_secs(30);
/// How often it is looked at whether an HTTP/2 connection is used.
const LOOK: Duration = Duration::from_secs(5);
/// Unused connections to one origin, for each thread.
const MAX_KEPT: usize = 32;
/// How often an HTTP/2 origin that owes an answer is asked whether it is alive.
const PING: Duration = Duration::from_secs(30);

type Outgoing = Request<Content<Incoming>>;
type Answer = Result<Response<hyper::body::Incoming>, TrySendError<Outgoing>>;

/// Connections to origins.
#[derive(Debug, Default)]
pub(super) struct Plain(Arc<Pools>);

#[derive(Debug, Default)]
struct Pools(Mutex<HashMap<(ThreadId, Target), Pool>>);

/// One thread's connections to one origin.
#[derive(Debug, Default)]
struct Pool {
    /// Unused ones, the latest last.
    http1: Vec<(Instant, http1::SendRequest<Content<Incoming>>)>,
    /// Locked while it connects, so that many requests at once make one connection.
    http2: Arc<AsyncMutex<Option<Http2>>>,
}

#[derive(Debug)]
struct Http2 {
    used: Instant,
    sender: http2::SendRequest<Content<Incoming>>,
}

impl Plain {
    /// Sends a request to its origin and waits for the response's head.
    ///
    /// # Errors
    /// The origin may not be reached, cannot be, or gives no response.
    pub(super) async fn send(
        &self,
        mut request: Request<Incoming>,
        target: &Target,
        rules: &Rules,
        spec: &ForwardSpec,
    ) -> Result<Response<hyper::body::Incoming>, Failure> {
        // Rules may forbid what an open connection would allow.
        rules.check_name(&target.host, target.port)?;
        let is_h2c =
            request.headers_mut().remove(NEXT_PROTOCOL).is_some_and(|value| value == "h2c");
        let authority = request.uri().authority().cloned();
        let authority = authority.ok_or_else(|| Failure::bad_request("no authority"))?;
        let mut request = prepare(request, &authority, is_h2c)?;
        let repeatable = request.method().is_idempotent() && request.body().is_end_stream();
        let mut copy = repeatable.then(|| without_body(&request));
        let mut fresh = false;
        loop {
            let (answer, kept) = if is_h2c {
                self.send_http2(request, target, rules, spec, fresh).await?
            } else {
                self.send_http1(request, target, rules, spec, fresh).await?
            };
            let mut error = match answer {
                Ok(mut response) => {
                    head::accept(&mut response).map_err(|failure| Failure::of_head(&failure))?;
                    response.headers_mut().remove(PROXY_AUTHENTICATE);
                    return Ok(response);
                }
                Err(error) => error,
            };
            // The kept connection had ended, or did so when the request came.
            let unsent = error.take_message();
            let again = unsent.or_else(|| copy.take().filter(|_| is_lost(error.error())));
            match again {
                Some(again) if kept => request = again,
                _ => return Err(Failure::no_response(&target.to_string(), &error.into_error())),
            }
            fresh = true;
        }
    }

    /// The answer, and whether it was asked for on a kept connection.
    async fn send_http1(
        &self,
        request: Outgoing,
        target: &Target,
        rules: &Rules,
        spec: &ForwardSpec,
        fresh: bool,
    ) -> Result<(Answer, bool), Failure> {
        let key = (thread::current().id(), target.clone());
        let kept = if fresh { None } else { self.0.take_http1(&key) };
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => {
                let tcp = dial::dial(target, rules, spec.connect_timeout).await?;
                let failed = |error| Failure::no_response(&target.to_string(), &error);
                let (sender, connection) =
                    http1::handshake(TokioIo::new(tcp)).await.map_err(failed)?;
                tokio::spawn(drive(connection));
                sender
            }
        };
        // Who still sends may take as long as it needs.
        let has_body = !request.body().is_end_stream();
        let sending = sender.try_send_request(request);
        let answer = if has_body {
            sending.await
        } else {
            timeout(spec.response_timeout, sending)
                .await
                .map_err(|_| Failure::response_takes_too_long(&target.to_string()))?
        };
        if answer.as_ref().is_ok_and(|response| !framing::leaves_doubt(response)) {
            let pools = Arc::clone(&self.0);
            tokio::spawn(async move {
                // The response's body is on the connection until then.
                if sender.ready().await.is_err() {
                    return;
                }
                pools.put_http1(key.clone(), sender);
                sleep(KEPT).await;
                pools.tidy(&key);
            });
        }
        Ok((answer, is_kept))
    }

    async fn send_http2(
        &self,
        request: Outgoing,
        target: &Target,
        rules: &Rules,
        spec: &ForwardSpec,
        fresh: bool,
    ) -> Result<(Answer, bool), Failure> {
        let key = (thread::current().id(), target.clone());
        let place = self.0.http2(&key);
        let mut place = place.lock().await;
        let kept = place.as_mut().filter(|kept| !fresh && !kept.sender.is_closed());
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some(kept) => {
                kept.used = Instant::now();
                kept.sender.clone()
            }
            None => {
                let tcp = dial::dial(target, rules, spec.connect_timeout).await?;
                let failed = |error| Failure::no_response(&target.to_string(), &error);
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .keep_alive_interval(PING)
                    .adaptive_window(true)
                    .handshake(TokioIo::new(tcp))
                    .await
                    .map_err(failed)?;
                tokio::spawn(drive(connection));
                *place = Some(Http2 { used: Instant::now(), sender: sender.clone() });
                let pools = Arc::clone(&self.0);
                tokio::spawn(async move {
                    loop {
                        sleep(LOOK).await;
                        if pools.tidy(&key) {
                            return;
                        }
                    }
                });
                sender
            }
        };
        drop(place);
        Ok((sender.try_send_request(request).await, is_kept))
    }
}

/// Runs a connection to its end.
async fn drive(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to an origin ended");
    }
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, HashMap<(ThreadId, Target), Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_http1(
        &self,
        key: &(ThreadId, Target),
    ) -> Option<http1::SendRequest<Content<Incoming>>> {
        let mut pools = self.lock();
        let kept = &mut pools.get_mut(key)?.http1;
        kept.retain(|(since, sender)| sender.is_ready() && since.elapsed() < KEPT);
        kept.pop().map(|(_, sender)| sender)
    }

    fn put_http1(&self, key: (ThreadId, Target), sender: http1::SendRequest<Content<Incoming>>) {
        let mut pools = self.lock();
        let kept = &mut pools.entry(key).or_default().http1;
        if kept.len() < MAX_KEPT {
            kept.push((Instant::now(), sender));
        }
    }

    fn http2(&self, key: &(ThreadId, Target)) -> Arc<AsyncMutex<Option<Http2>>> {
        Arc::clone(&self.lock().entry(key.clone()).or_default().http2)
    }

    /// Lets go of what nobody used for long; an HTTP/2 connection ends with its last stream. Whether
    /// nothing is left.
    fn tidy(&self, key: &(ThreadId, Target)) -> bool {
        let mut pools = self.lock();
        let Some(pool) = pools.get_mut(key) else { return true };
        pool.http1.retain(|(since, sender)| !sender.is_closed() && since.elapsed() < KEPT);
        let is_used = |kept: &mut Http2| !kept.sender.is_closed() && kept.used.elapsed() < KEPT;
        let http2_ended = pool.http2.try_lock().is_ok_and(|mut place| {
            let _unused = place.take_if(|kept| !is_used(kept));
            place.is_none()
        });
        let is_empty = pool.http1.is_empty() && http2_ended;
        if is_empty {
            pools.remove(key);
        }
        is_empty
    }
}

/// The head of a request that has no body, to be sent once more.
fn without_body(request: &Outgoing) -> Outgoing {
    let mut copy = Request::new(Content::nothing(Incoming::empty()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// Whether the connection ended before there was an answer.
fn is_lost(error: &hyper::Error) -> bool {
    let broke =
        std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || error.is_canceled() || broke
}

/// The request as the origin is to see it.
fn prepare(
    mut request: Request<Incoming>,
    target: &Authority,
    is_h2c: bool,
) -> Result<Outgoing, Failure> {
    let by = match request.version() {
        Version::HTTP_2 => "2 smig",
        _ => "1.1 smig",
    };
    let interim = request.extensions_mut().remove::<Interim>();
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Err(Failure::bad_request("more than one host"));
    }
    // The target's authority goes before Host (RFC 9112 section 3.2.2).
    let host = HeaderValue::from_str(target.as_str());
    let host = host.map_err(|_| Failure::bad_request("a bad authority"))?;
    request.headers_mut().insert(HOST, host);
    let of_head = |failure| Failure::of_head(&failure);
    let (parts, body) = request.into_parts();
    let (mut outward, content, _) =
        head::admit(parts, body, None, Upgrades::Ignored).map_err(of_head)?;
    // Our own side has answered it.
    outward.fields.remove(&EXPECT);
    outward.fields.say(Own::Via, HeaderValue::from_static(by));
    if is_h2c {
        outward.fields.remove(&HOST);
        let mut request = head::for_http2(outward, &Scheme::HTTP, content).map_err(of_head)?;
        *request.version_mut() = Version::HTTP_2;
        return Ok(request);
    }
    let mut request = head::for_http1(outward, content).map_err(of_head)?;
    if let Some(interim) = interim {
        hyper::ext::on_informational(&mut request, move |response| {
            let mut passed = Response::new(());
            *passed.status_mut() = response.status();
            *passed.headers_mut() = response.headers().clone();
            // 100 is said by our own side, when the body is read.
            if response.status() != StatusCode::CONTINUE && head::accept(&mut passed).is_ok() {
                interim.send(passed.status(), std::mem::take(passed.headers_mut()));
            }
        });
    }
    Ok(request)
}
