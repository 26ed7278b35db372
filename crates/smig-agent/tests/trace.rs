//! One trace from a local program through an agent and a gateway to an origin.

#[path = "../../smig-gateway/tests/telemetry/collector.rs"]
#[expect(dead_code, reason = "the gateway's tests use the rest")]
mod collector;
#[path = "../../smig-gateway/tests/telemetry/support.rs"]
#[expect(dead_code, reason = "the gateway's tests use the rest")]
mod support;

use smig::{Origin, Trust};
use smig_admin::telemetry::TelemetrySpec;
use smig_agent::{self as agent, Agent, AgentOptions, Credentials};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use collector::{Collector, hex, texts};
use support::{LONG, SPAN, TRACE, get, origin, start_gateway, telemetry};

#[tokio::test]
async fn agent_and_gateway_are_in_one_trace() {
    let (mut collector, origin) = (Collector::start(), origin());
    let directory = tempfile::tempdir().unwrap();
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (chain, key) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
    std::fs::write(&chain, certificate.cert.pem()).unwrap();
    std::fs::write(&key, certificate.signing_key.serialize_pem()).unwrap();
    // The hash of "a-long-secret".
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = '{}'\nkey = '{}'\n\
         [forward_proxy]\nallow = ['127.0.0.0/8']\n[forward_proxy.users]\nann = 'sha256:\
         7a22da1ddf51a945bde6a3e940cdf91c9815108dc7235fe60da782dec55fb883'\n\
         [server]\nworkers = 1\n{}",
        chain.display(),
        key.display(),
        telemetry(&collector.endpoint(), "")
    );
    let (gateway, address) = start_gateway(&text);
    let mut telemetry = TelemetrySpec::new(&collector.endpoint()).unwrap();
    telemetry.headers.insert("x-key", "a key".parse().unwrap());
    let options = AgentOptions {
        credentials: Credentials::bearer("a-long-secret"),
        http: vec!["127.0.0.1:0".parse().unwrap()],
        socks: vec!["127.0.0.1:0".parse().unwrap()],
        telemetry: Some(telemetry),
        ..AgentOptions::new(Origin::https("localhost", address.port()))
    };
    let client = agent::client_builder().trust(Trust::Pem(certificate.cert.pem().into()));
    let agent = Agent::start(options, client).await.unwrap();

    let target = origin.local_addrs()[0];
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: a=1\r\n");
    let forwarded_fields = get(agent.http_addrs()[0], &format!("http://{target}/x"), &parent).await;

    // A SOCKS tunnel starts a new trace.
    let mut tcp = TcpStream::connect(agent.socks_addrs()[0]).await.unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(target.port().to_be_bytes());
    tcp.write_all(&request).await.unwrap();
    let mut reply = [0; 12];
    tcp.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[3], 0);
    tcp.write_all(b"GET /bytes/9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    tcp.read_to_end(&mut response).await.unwrap();
    drop(tcp);

    agent.shutdown(LONG).await;
    gateway.drain(LONG).await.unwrap();
    let services = collector.received();
    let (agent_span, gateway_span) =
        (services["smig-agent"].at("/x"), services["smig-gateway"].at("/x"));
    assert_eq!([hex(&agent_span.trace_id), hex(&gateway_span.trace_id)], [TRACE, TRACE]);
    assert_eq!(hex(&agent_span.parent_span_id), SPAN);
    assert_eq!(gateway_span.parent_span_id, agent_span.span_id);
    assert_eq!(forwarded_fields, format!("00-{TRACE}-{}-01|a=1", hex(&gateway_span.span_id)));
    assert_eq!(texts(&agent_span.attributes)["smig.migrations"], "0");

    let find_span =
        |service: &str, name| services[service].spans.iter().find(|span| span.name == name);
    let (socks_span, connect_span) =
        (find_span("smig-agent", "SOCKS5").unwrap(), find_span("smig-gateway", "CONNECT").unwrap());
    assert_eq!(
        (&socks_span.trace_id, &socks_span.span_id),
        (&connect_span.trace_id, &connect_span.parent_span_id)
    );
    let attributes = texts(&socks_span.attributes);
    assert_eq!(attributes["http.response.body.size"], response.len().to_string());
    assert_eq!(attributes["server.port"], target.port().to_string());
}
