//! Spans of requests, and their fields at the end. A separate process: workers are threads, and only the global
//! subscriber receives the spans of all of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use smig::{BoxError, Cleartext, CleartextTrust, Client, Incoming, MigrationHint, Origin, Server};
use smig_admin::AdminObserver;
use smig_admin::spans::{RequestSpan, TARGET};
use smig_gateway::Gateway;
use smig_gateway::config::Config;
use smig_proxy::tunnel::{self, ConnectResponse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

type Fields = BTreeMap<String, String>;
type EndedSpans = mpsc::UnboundedReceiver<Fields>;

struct FieldVisitor<'a>(&'a mut Fields);

impl Visit for FieldVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").replace('"', ""));
    }
}

/// Sends the fields of each request span that ends.
struct SpanCollector {
    open_spans: Mutex<BTreeMap<u64, Fields>>,
    ended_tx: mpsc::UnboundedSender<Fields>,
}

impl Layer<Registry> for SpanCollector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, Registry>) {
        if attributes.metadata().target() == TARGET {
            let mut fields = Fields::new();
            attributes.record(&mut FieldVisitor(&mut fields));
            self.open_spans.lock().unwrap().insert(id.into_u64(), fields);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, Registry>) {
        if let Some(fields) = self.open_spans.lock().unwrap().get_mut(&id.into_u64()) {
            record.record(&mut FieldVisitor(fields));
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, Registry>) {
        if let Some(fields) = self.open_spans.lock().unwrap().remove(&id.into_u64()) {
            drop(self.ended_tx.send(fields));
        }
    }
}

const BODY_BYTES: usize = 4 << 20;

/// The process has one global subscriber, and therefore one test.
#[tokio::test]
async fn requests_have_spans() {
    let (sender, mut ended_spans) = mpsc::unbounded_channel();
    let collector = SpanCollector { open_spans: Mutex::default(), ended_tx: sender };
    tracing::subscriber::set_global_default(Registry::default().with(collector)).unwrap();
    a_span_ends_with_its_stream_and_records_bytes_and_migrations(&mut ended_spans).await;
    gateway_spans_record_route_and_upstream(&mut ended_spans).await;
    forward_proxy_spans_record_the_destination(&mut ended_spans).await;
}

async fn a_span_ends_with_its_stream_and_records_bytes_and_migrations(
    ended_spans: &mut EndedSpans,
) {
    let observer_in_handler = AdminObserver::new();
    let observer = Arc::clone(&observer_in_handler);
    let handler = move |request: Request<Incoming>| {
        let span = RequestSpan::for_route(
            &request,
            request.uri().authority(),
            "/files/",
            observer_in_handler.spans(),
        );
        async move {
            span.set_upstream("app");
            let body = request.into_body().collect().await?.to_bytes();
            assert_eq!(body, "please");
            let mut response = Response::new(Full::new(Bytes::from(vec![7; BODY_BYTES])));
            response.extensions_mut().insert(MigrationHint::Migrate);
            span.set_status(StatusCode::OK);
            Ok::<_, BoxError>(response)
        }
    };
    let server = Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::TrustedNetwork)
        .workers(NonZeroUsize::MIN)
        .observer(observer)
        .start(tower::service_fn(handler))
        .unwrap();
    let mut config = smig::Config::client();
    config.stream_window = 128 << 10;
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork))
        .engine(config)
        .build()
        .unwrap();
    let url = format!("http://{}/files/big?secret=1", server.local_addrs()[0]);
    let request = Request::post(url).body(Full::new(Bytes::from_static(b"please"))).unwrap();
    let response = client.request(request).await.unwrap();
    while client.stats().migrations == 0 {
        tokio::task::yield_now().await;
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), BODY_BYTES);
    let fields = ended_spans.recv().await.unwrap();
    let field = |name: &str| fields.get(name).map(String::as_str);
    assert_eq!(field("http.request.method"), Some("POST"), "{fields:?}");
    assert_eq!(field("http.route"), Some("/files/"));
    assert_eq!(field("url.path"), Some("/files/big"));
    assert_eq!(field("smig.upstream"), Some("app"));
    assert_eq!(field("http.response.status_code"), Some("200"));
    assert_eq!(field("http.request.body.size"), Some("6"));
    assert_eq!(field("http.response.body.size"), Some(BODY_BYTES.to_string().as_str()));
    assert_eq!(field("smig.migrations"), Some("1"));
    assert_eq!(field("error.type"), None);
}

async fn gateway_spans_record_route_and_upstream(ended_spans: &mut EndedSpans) {
    let handler =
        async |_| Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"here"))));
    let origin = Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(tower::service_fn(handler))
        .unwrap();
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
         [upstreams.app]\nservers = ['http://{}']\n\
         [[route]]\npath = '/api/'\nupstream = 'app'\n\
         [admin]\nlisten = '127.0.0.1:0'\n",
        origin.local_addrs()[0]
    );
    let config = Config::parse(&text, Path::new("gateway.toml")).unwrap();
    let gateway = Gateway::start(config).unwrap();
    let (address, _) = gateway.listeners().next().unwrap();
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::None))
        .build()
        .unwrap();
    let request = Request::get(format!("http://{address}/api/x")).body(Full::default()).unwrap();
    let body = client.request::<Full<Bytes>>(request).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "here");
    let fields = ended_spans.recv().await.unwrap();
    let field = |name: &str| fields.get(name).map(String::as_str);
    assert_eq!(field("otel.name"), Some("GET /api/"), "{fields:?}");
    assert_eq!(field("smig.upstream"), Some("app"));
    assert_eq!(field("http.response.status_code"), Some("200"));
    assert_eq!(field("http.response.body.size"), Some("4"));
}

async fn forward_proxy_spans_record_the_destination(ended_spans: &mut EndedSpans) {
    let handler =
        async |_| Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"here"))));
    let origin = Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(tower::service_fn(handler))
        .unwrap();
    // The hash of "a-long-secret".
    let text = "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n[[route]]\nstatus = 404\n\
                [forward_proxy]\nallow = ['127.0.0.0/8']\n[forward_proxy.users]\nann = 'sha256:\
                7a22da1ddf51a945bde6a3e940cdf91c9815108dc7235fe60da782dec55fb883'\n\
                [admin]\nlisten = '127.0.0.1:0'\n";
    let gateway = Gateway::start(Config::parse(text, Path::new("gateway.toml")).unwrap()).unwrap();
    let (address, _) = gateway.listeners().next().unwrap();
    let proxy = Origin::from_uri(&format!("http://{address}").parse().unwrap()).unwrap();
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::None))
        .build()
        .unwrap();
    let target = origin.local_addrs()[0];
    let token = ("proxy-authorization", "Bearer a-long-secret");
    let request = Request::get(format!("http://{target}/x?secret=1")).header(token.0, token.1);
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let body = client.request_to(&proxy, request).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "here");
    let port = target.port().to_string();
    let fields = ended_spans.recv().await.unwrap();
    let field = |name: &str| fields.get(name).map(String::as_str);
    assert_eq!(field("otel.name"), Some("GET"), "{fields:?}");
    assert_eq!(field("url.path"), Some("/x"));
    assert_eq!((field("server.address"), field("server.port")), (Some("127.0.0.1"), Some(&*port)));
    assert_eq!(field("http.response.status_code"), Some("200"));
    assert_eq!((field("http.response.body.size"), field("http.route")), (Some("4"), None));

    // A tunnel's span ends with the tunnel.
    let request = Request::builder().method(Method::CONNECT).uri(target.to_string());
    let request = request.header(token.0, token.1).body(()).unwrap();
    let opened = tunnel::open(&client, &proxy, request).await.unwrap();
    let ConnectResponse::Tunnel(_, mut stream) = opened else { panic!("{opened:?}") };
    let request_bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request_bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    stream.shutdown().await.unwrap();
    let fields = ended_spans.recv().await.unwrap();
    let field = |name: &str| fields.get(name).map(String::as_str);
    assert_eq!(field("otel.name"), Some("CONNECT"), "{fields:?}");
    assert_eq!(field("server.port"), Some(&*port));
    assert_eq!(field("http.request.body.size"), Some(&*request_bytes.len().to_string()));
    assert_eq!(field("http.response.body.size"), Some(&*answer.len().to_string()));
}
