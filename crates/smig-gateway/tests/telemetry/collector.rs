//! A collector that decodes what it receives.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use smig::{BoxError, CleartextTrust, Incoming, Server};
use tokio::sync::mpsc;

pub(crate) struct Collector {
    server: Server,
    requests: mpsc::UnboundedReceiver<(http::request::Parts, ExportTraceServiceRequest)>,
}

/// What was received from one service.
pub(crate) struct ReceivedSpans {
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) spans: Vec<Span>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let receive = move |request: Request<Incoming>| {
            let sender = sender.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                sender.send((parts, ExportTraceServiceRequest::decode(body)?))?;
                let answer = ExportTraceServiceResponse::default().encode_to_vec();
                Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(answer))))
            }
        };
        let server = Server::builder()
            .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
            .workers(NonZeroUsize::MIN)
            .start(tower::service_fn(receive))
            .unwrap();
        Self { server, requests }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.server.local_addrs()[0])
    }

    /// Returns everything received, by service. Call it after all senders have ended.
    pub(crate) fn received(&mut self) -> BTreeMap<String, ReceivedSpans> {
        let mut spans_by_service = BTreeMap::new();
        while let Ok((parts, request)) = self.requests.try_recv() {
            assert_eq!((parts.method.as_str(), parts.uri.path()), ("POST", "/v1/traces"));
            assert_eq!(parts.headers["content-type"], "application/x-protobuf");
            assert_eq!(parts.headers["x-key"], "a key");
            for resource_spans in request.resource_spans {
                let resource = texts(&resource_spans.resource.unwrap().attributes);
                let service_spans = spans_by_service
                    .entry(resource["service.name"].clone())
                    .or_insert_with(|| ReceivedSpans { resource, spans: Vec::new() });
                for scope in resource_spans.scope_spans {
                    assert_eq!(scope.scope.unwrap().name, "smig");
                    service_spans.spans.extend(scope.spans);
                }
            }
        }
        spans_by_service
    }
}

impl ReceivedSpans {
    /// Returns the span with this path.
    pub(crate) fn at(&self, path: &str) -> &Span {
        let has_path =
            |span: &&Span| texts(&span.attributes).get("url.path").is_some_and(|p| p == path);
        self.spans.iter().find(has_path).unwrap_or_else(|| panic!("no {path} in {:?}", self.spans))
    }
}

/// Returns the attributes as text.
pub(crate) fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let value = |one: &KeyValue| text(one.value.as_ref().unwrap().value.as_ref().unwrap());
    attributes.iter().map(|one| (one.key.clone(), value(one))).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
