//! Header fields that are in the bodies of responses, over each protocol.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::support::{answer, loopback};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use smig::{BoxError, Cleartext, CleartextTrust, Client, Incoming, Server};
use tower::service_fn;

#[derive(Clone)]
struct SharedBody {
    data: Full<Bytes>,
    headers: Option<Arc<HeaderMap>>,
}

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.data).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.data.size_hint()
    }
}

/// Answers with fields in the body unless the path is `/unshared`, and with a field in the head unless it is `/`, two if it is
/// `/own`; without content if it is `/empty`.
fn share_headers(path: &str, headers: &Arc<HeaderMap>) -> Response<SharedBody> {
    let data = if path == "/empty" { Full::default() } else { Full::new("hello".into()) };
    let headers = Some(Arc::clone(headers)).filter(|_| path != "/unshared");
    let mut response = Response::new(SharedBody { data, headers });
    if path != "/" {
        response.headers_mut().insert("x-own", HeaderValue::from_static("1"));
    }
    if path == "/own" {
        response.headers_mut().insert("vary", HeaderValue::from_static("origin"));
    }
    response
}

#[tokio::test]
async fn fields_that_responses_share_arrive_over_each_protocol() {
    let shared = [("x-shared", "1"), ("x-own", "0"), ("vary", "accept-encoding")];
    let shared = shared
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let shared = Arc::new(HeaderMap::from_iter(shared));
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .shared_headers(|body: &SharedBody| body.headers.as_ref())
        .start(service_fn(move |request: Request<Incoming>| {
            let response = share_headers(request.uri().path(), &shared);
            async { Ok::<_, BoxError>(response) }
        }))
        .unwrap();
    for protocol in [Cleartext::Http1, Cleartext::PriorKnowledge(CleartextTrust::None)] {
        let client = Client::builder().cleartext(protocol).build().unwrap();
        // Repeated, so that the block of each response is known.
        for (method, path) in ["/", "/own", "/empty", "/unshared"]
            .into_iter()
            .flat_map(|path| [(Method::GET, path), (Method::HEAD, path)])
            .flat_map(|request| [request.clone(), request.clone(), request])
        {
            let uri = format!("http://{}{path}", server.local_addrs()[0]);
            let request = Request::builder().method(&method).uri(uri);
            let request = request.body(Full::<Bytes>::default()).unwrap();
            let response = client.request(request).await.unwrap();
            let headers = response.headers();
            assert!(headers.contains_key("date"), "{protocol:?} {path}");
            let is_shared = path != "/unshared";
            assert_eq!(headers.contains_key("x-shared"), is_shared, "{protocol:?} {path}");
            if method == Method::GET && path != "/empty" {
                assert_eq!(headers["content-length"], "5", "{protocol:?} {path}");
            }
            let varies = headers.get_all("vary").iter().count();
            assert_eq!(varies, usize::from(is_shared) + usize::from(path == "/own"), "{path}");
            let own = if path == "/" { "0" } else { "1" };
            assert_eq!(headers["x-own"], own, "{protocol:?} {path}");
            let has_content = method == Method::GET && path != "/empty";
            let expected: &[u8] = if has_content { b"hello" } else { b"" };
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, expected, "{protocol:?} {path}");
        }
    }
}

#[tokio::test]
async fn shared_fields_of_bodies_of_another_type_are_refused() {
    let builder = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .shared_headers(|body: &SharedBody| body.headers.as_ref());
    let error = builder.start(service_fn(answer)).unwrap_err();
    assert!(error.to_string().contains("another type"), "{error}");
    let server = Server::builder()
        .shared_headers(|body: &SharedBody| body.headers.as_ref())
        .connection_server(service_fn(answer))
        .unwrap();
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let (client, accepted) = tokio::join!(
        tokio::net::TcpStream::connect(listener.local_addr().unwrap()),
        listener.accept()
    );
    let served = server.serve_cleartext_connection(accepted.unwrap().0, CleartextTrust::None).await;
    assert!(served.unwrap_err().to_string().contains("another type"));
    drop(client);
}
