//! Spans of a gateway's requests.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use smig::{Cleartext, CleartextTrust, Client, Incoming};

use crate::collector::{Collector, hex, texts};
use crate::support::{LONG, SPAN, TRACE, gateway, get, origin, telemetry};

fn client() -> Client {
    let mut engine = smig::Config::client();
    engine.stream_window = 128 << 10;
    Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork))
        .engine(engine)
        .build()
        .unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn spans_follow_the_semantic_conventions() {
    let (mut collector, origin) = (Collector::start(), origin());
    let telemetry_config = telemetry(&collector.endpoint(), "service_name = 'edge'\n");
    let (gateway, address) = gateway(&origin, &telemetry_config);
    let client = client();
    let request = Request::post(format!("http://{address}/h2?secret=1"))
        .header("traceparent", format!("00-{TRACE}-{SPAN}-01"))
        .header("tracestate", "a=1")
        .header("cookie", "secret")
        .body(Full::new(Bytes::from_static(b"please")))
        .unwrap();
    let trace_fields = text(client.request(request).await.unwrap()).await;
    let (traceparent, state) = trace_fields.split_once('|').unwrap();
    assert_eq!(state, "a=1");
    let span_id =
        traceparent.strip_prefix(&format!("00-{TRACE}-")).unwrap().strip_suffix("-01").unwrap();
    assert_ne!(span_id, SPAN);

    assert_eq!(get(address, "/status/503?secret=1", "").await, "");
    let big_request = Request::get(format!("http://{address}/moved/4000000"));
    let big_response =
        client.request(big_request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    while client.stats().migrations == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(big_response.into_body().collect().await.unwrap().to_bytes().len(), 4_000_000);
    assert_eq!(get(address, "/bytes/5", "X-Secret: secret\r\n").await.len(), 5);
    gateway.drain(LONG).await.unwrap();

    let spans_by_service = collector.received();
    let edge = &spans_by_service["edge"];
    assert_eq!(edge.resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(edge.spans.len(), 4);
    assert!(!format!("{:?}", edge.spans).contains("secret"));

    let span = edge.at("/h2");
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), SPAN.into()));
    assert_eq!(hex(&span.span_id), span_id);
    assert_eq!((span.name.as_str(), span.kind()), ("POST /", SpanKind::Server));
    assert_eq!(span.trace_state, "a=1");
    assert_eq!(
        span.status.as_ref().map_or(StatusCode::Unset, |status| status.code()),
        StatusCode::Unset
    );
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.start_time_unix_nano > 0);
    let port = address.port().to_string();
    let expected = [
        ("http.request.body.size", "6"),
        ("http.request.method", "POST"),
        ("http.response.body.size", &trace_fields.len().to_string()),
        ("http.response.status_code", "200"),
        ("http.route", "/"),
        ("network.protocol.version", "2"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
        ("smig.migrations", "0"),
        ("smig.upstream", "app"),
        ("url.path", "/h2"),
        ("url.scheme", "http"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(texts(&span.attributes), expected.into());

    let failed_span = edge.at("/status/503");
    assert!(failed_span.parent_span_id.is_empty());
    assert_eq!(failed_span.status.as_ref().unwrap().code(), StatusCode::Error);
    let attributes = texts(&failed_span.attributes);
    assert_eq!(attributes["error.type"], "503");
    assert_eq!(attributes["network.protocol.version"], "1.1");
    let host = (attributes["server.address"].as_str(), attributes["server.port"].as_str());
    assert_eq!(host, ("a.example", "81"));

    let migrated_span = edge.at("/moved/4000000");
    let attributes = texts(&migrated_span.attributes);
    assert_eq!(
        (&*attributes["smig.migrations"], &*attributes["http.response.body.size"]),
        ("1", "4000000")
    );
    assert_eq!(migrated_span.events.len(), 1);
    assert_eq!(migrated_span.events[0].name, "migrated");
    assert!(texts(&migrated_span.events[0].attributes).contains_key("reason"));

    // Over HTTP/1.1 a span lasts as long as the body.
    assert_eq!(texts(&edge.at("/bytes/5").attributes)["http.response.body.size"], "5");
}

#[tokio::test]
async fn an_invalid_traceparent_starts_a_trace_and_an_unsampled_one_exports_nothing() {
    let (mut collector, origin) = (Collector::start(), origin());
    let (gateway, address) = gateway(&origin, &telemetry(&collector.endpoint(), ""));
    let zero_trace_id = "0".repeat(32);
    let invalid_fields =
        format!("traceparent: 00-{zero_trace_id}-{SPAN}-01\r\ntracestate: a=1\r\n");
    let traceparent = get(address, "/bad", &invalid_fields).await;
    let unsampled_fields =
        format!("traceparent: 00-{TRACE}-{SPAN}-00\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
    let unsampled_trace = get(address, "/quiet", &unsampled_fields).await;
    gateway.drain(LONG).await.unwrap();

    let spans_by_service = collector.received();
    let spans = &spans_by_service["smig-gateway"].spans;
    assert_eq!(spans.len(), 1);
    let (trace, span) = (hex(&spans[0].trace_id), hex(&spans[0].span_id));
    assert!(spans[0].parent_span_id.is_empty() && trace != TRACE);
    // Without the tracestate, which belonged to another trace.
    assert_eq!(traceparent, format!("00-{trace}-{span}-01"));
    assert!(
        unsampled_trace.starts_with(&format!("00-{TRACE}-"))
            && unsampled_trace.ends_with("-00|a=1|b=2"),
        "{unsampled_trace}"
    );
    assert!(!unsampled_trace.contains(SPAN));
}

#[tokio::test]
async fn a_sample_ratio_of_0_exports_only_traces_that_the_client_sampled() {
    let (mut collector, origin) = (Collector::start(), origin());
    let (gateway, address) =
        gateway(&origin, &telemetry(&collector.endpoint(), "sample_ratio = 0"));
    let traceparent = get(address, "/", "").await;
    assert!(traceparent.starts_with("00-") && traceparent.ends_with("-00"), "{traceparent}");
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\n");
    get(address, "/asked", &parent).await;
    gateway.drain(LONG).await.unwrap();
    let spans_by_service = collector.received();
    assert_eq!(spans_by_service["smig-gateway"].spans.len(), 1);
    spans_by_service["smig-gateway"].at("/asked");
}

#[tokio::test]
async fn without_telemetry_trace_fields_pass_unchanged() {
    let origin = origin();
    let (_gateway, address) = gateway(&origin, "[admin]\nlisten = '127.0.0.1:0'\n");
    let fields = "traceparent: what ever\r\ntraceparent: else\r\ntracestate: a=1\r\n";
    assert_eq!(get(address, "/", fields).await, "what ever|else|a=1");
}
