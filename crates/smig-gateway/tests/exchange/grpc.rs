//! gRPC and server-sent events: forwarding, and bodies that may idle.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use smig::{BulkReason, CleartextTrust, Incoming, Server};
use smig_gateway::upstream::{Timeouts, UpstreamSpec};
use tokio::sync::{mpsc, watch};
use tower::Service as _;

use crate::support::{Gateway, client, loopback, spec};

/// Returns a body of the frames that are sent to the channel.
fn channel() -> (mpsc::Sender<Frame<Bytes>>, StreamBody<Frames>) {
    let (sender, frames) = mpsc::channel(1);
    (sender, StreamBody::new(Frames(frames)))
}

struct Frames(mpsc::Receiver<Frame<Bytes>>);

impl futures_util::Stream for Frames {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn request_of_type(media_type: &str, path: &str, gateway: &Gateway) -> Request<Full<Bytes>> {
    // Without a body, since `stream_idle` also applies to uploads.
    let request = Request::post(gateway.url(path)).header(CONTENT_TYPE, media_type);
    request.body(Full::default()).unwrap()
}

/// A server that responds with the media type of the request: `a` at once, `b` and trailers when
/// `is_resumed` is set. At `/late` the header section is sent only then, too.
fn pausing_server(is_resumed: watch::Receiver<bool>) -> Server {
    let handler = move |request: Request<Incoming>| {
        let mut is_resumed = is_resumed.clone();
        async move {
            let media_type = request.headers()[CONTENT_TYPE].clone();
            if request.uri().path() == "/late" {
                is_resumed.wait_for(|now| *now).await.unwrap();
            }
            let (sender, body) = channel();
            tokio::task::spawn_local(async move {
                sender.send(Frame::data("a".into())).await.unwrap();
                is_resumed.wait_for(|now| *now).await.unwrap();
                let trailers = [("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))];
                // The body may have been reset.
                let _ = sender.send(Frame::data("b".into())).await;
                let _ = sender.send(Frame::trailers(trailers.into_iter().collect())).await;
            });
            let mut response = Response::new(body);
            response.headers_mut().insert(CONTENT_TYPE, media_type);
            Ok::<_, Infallible>(response)
        }
    };
    Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(tower::service_fn(handler))
        .unwrap()
}

/// Starts a gateway for a server, with these timeouts.
fn gateway_for(server: &Server, scheme: &str, timeouts: Timeouts) -> Gateway {
    let spec = spec(&[&format!("{scheme}://{}", server.local_addrs()[0])]);
    Gateway::start(&UpstreamSpec { timeouts, ..spec })
}

#[tokio::test]
async fn grpc_calls_and_event_streams_may_idle_while_others_time_out() {
    let (resume_tx, resume_rx) = watch::channel(false);
    let server = pausing_server(resume_rx);
    let (short, unlimited) = (Duration::from_millis(50), Duration::from_secs(3600));
    for scheme in ["h2c", "http"] {
        resume_tx.send_replace(false);
        let timeouts = Timeouts {
            stream_idle: Some(short),
            response_header: unlimited,
            ..Timeouts::default()
        };
        let (gateway, client) = (gateway_for(&server, scheme, timeouts), client());
        let begin = async |media_type: &str| {
            let request = client.request(request_of_type(media_type, "/", &gateway));
            let mut body = request.await.unwrap().into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(first, "a");
            body
        };
        // Started first: when `plain_response` times out, their time would be up as well.
        let events = begin("text/event-stream").await;
        let call = begin("application/grpc+proto").await;
        let plain_response =
            client.request(request_of_type("text/plain", "/", &gateway)).await.unwrap();
        assert!(plain_response.into_body().collect().await.is_err(), "{scheme}");
        resume_tx.send_replace(true);
        for body in [events, call] {
            let rest = body.collect().await.unwrap();
            // Over HTTP/1.1, trailers require a client that accepts them and a server that announces them.
            if scheme == "h2c" {
                assert_eq!(rest.trailers().unwrap()["grpc-status"], "0");
            }
            assert_eq!(rest.to_bytes(), "b", "{scheme}");
        }
    }
}

#[tokio::test]
async fn a_large_message_of_a_call_is_bulk_from_its_beginning() {
    let begin_message = async |request: Request<Incoming>| {
        let (sender, body) = channel();
        let mut beginning = vec![0];
        beginning.extend(300_000_u32.to_be_bytes());
        beginning.extend([7; 100]);
        sender.send(Frame::data(beginning.into())).await.unwrap();
        tokio::task::spawn_local(async move { sender.closed().await });
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, request.headers()[CONTENT_TYPE].clone());
        Ok::<_, Infallible>(response)
    };
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(tower::service_fn(begin_message))
        .unwrap();
    for (media_type, bulk) in [("application/grpc", Some(BulkReason::Size)), ("text/plain", None)] {
        let (gateway, client) = (gateway_for(&server, "h2c", Timeouts::default()), client());
        let request = client.request(request_of_type(media_type, "/", &gateway));
        let mut body = request.await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 105);
        assert_eq!(gateway.sessions().await.sessions[0].streams[0].bulk, bulk, "{media_type}");
    }
}

#[tokio::test]
async fn a_grpc_response_has_no_header_timeout() {
    let (resume_tx, resume_rx) = watch::channel(false);
    let server = pausing_server(resume_rx);
    let timeouts = Timeouts { response_header: Duration::from_millis(50), ..Timeouts::default() };
    let (gateway, client) = (gateway_for(&server, "h2c", timeouts), client());
    let call =
        tokio::spawn(client.clone().call(request_of_type("application/grpc", "/late", &gateway)));
    let timed_out_response =
        client.request(request_of_type("text/plain", "/late", &gateway)).await.unwrap();
    assert_eq!(timed_out_response.status(), 504);
    resume_tx.send_replace(true);
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn grpc_fields_and_a_trailers_only_response_are_forwarded() {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(tower::service_fn(async |request: Request<Incoming>| {
            let mut response = Response::new(Full::<Bytes>::default());
            let headers: HeaderMap = request.headers().clone();
            for name in ["te", "grpc-timeout", "content-type", "x-detail-bin"] {
                let value = headers[name].clone();
                let name = if name == "te" { "x-te" } else { name };
                response.headers_mut().insert(name, value);
            }
            response.headers_mut().insert("grpc-status", HeaderValue::from_static("9"));
            Ok::<_, Infallible>(response)
        }))
        .unwrap();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let mut request = request_of_type("application/grpc", "/package.Service/Call", &gateway);
    for (name, value) in [("te", "trailers"), ("grpc-timeout", "100m"), ("x-detail-bin", "AAH+")] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let response = client().request(request).await.unwrap();
    let headers = response.headers();
    for (name, value) in [
        ("x-te", "trailers"),
        ("grpc-timeout", "100m"),
        ("x-detail-bin", "AAH+"),
        ("content-type", "application/grpc"),
        ("grpc-status", "9"),
    ] {
        assert_eq!(headers[name], value);
    }
    assert!(http_body::Body::is_end_stream(response.body()), "nothing follows the header section");
}
