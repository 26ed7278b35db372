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
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        socks: vec!["127.0.0.1:0".parse().unwrap()],
        telemetry: Some(telemetry),
        ..AgentOptions::new(Origin::https("localhost", address.port()))
    };
    let client = agent::client_builder().trust(Trust::Pem(certificate.cert.pem().into()));
    let agent = Agent::start(options, client).await.unwrap();

    let target = origin.local_addrs()[0];
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: a=1\r\n");
    let forwarded = get(agent.http_addrs()[0], &format!("http://{target}/x"), &parent).await;

    // A SOCKS tunnel starts a new trace.
    let mut tcp = TcpStream::connect(agent.socks_addrs()[0]).await.unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(target.port().to_be_bytes());
    tcp.write_all(&request).await.unwrap();
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[3], 0);
    tcp.write_all(b"GET /bytes/9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.unwrap();
    drop(tcp);

    agent.shutdown(LONG).await;
    gateway.drain(LONG).await.unwrap();
    let all = collector.received();
    let (first, second) = (all["smig-agent"].at("/x"), all["smig-gateway"].at("/x"));
    assert_eq!([hex(&first.trace_id), hex(&second.trace_id)], [TRACE, TRACE]);
    assert_eq!(hex(&first.parent_span_id), SPAN);
    assert_eq!(second.parent_span_id, first.span_id);
    assert_eq!(forwarded, format!("00-{TRACE}-{}-01|a=1", hex(&second.span_id)));
    assert_eq!(texts(&first.attributes)["smig.migrations"], "0");

    let named = |service: &str, name| all[service].spans.iter().find(|span| span.name == name);
    let (socks, connect) =
        (named("smig-agent", "SOCKS5").unwrap(), named("smig-gateway", "CONNECT").unwrap());
    assert_eq!((&socks.trace_id, &socks.span_id), (&connect.trace_id, &connect.parent_span_id));
    let attributes = texts(&socks.attributes);
    assert_eq!(attributes["http.response.body.size"], answer.len().to_string());
    assert_eq!(attributes["server.port"], target.port().to_string());
}
