//! Spans reach a collector by OTLP over HTTP, in the trace that their request names. A process of its
//! own: workers are threads, and only the global subscriber sees them all.
#![cfg(feature = "otlp")]

#[path = "gateway/support.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use smig::{BoxError, ClearTrust, Incoming, Origin, Server, Trust};
use smig_gateway::agent::{self, Agent, AgentSpec, Credentials};
use smig_gateway::telemetry::Exporter;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt as _;

use support::{Authority, Place, assert_status, exchange, origin, url};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const UNSAMPLED: &str = "5bf92f3577b34da6a3ce929d0e0e4737";
const PARENT: &str = "00f067aa0ba902b7";

/// A span as the collector has it, ids in hexadecimal digits.
#[derive(Debug)]
struct Seen {
    service: String,
    trace: String,
    id: String,
    parent: String,
    name: String,
    fields: BTreeMap<String, String>,
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A message of protobuf: its fields' numbers and what they hold, read by hand so that nothing of the
/// exporter's own reads what it wrote.
struct Message<'a>(Vec<(u64, Field<'a>)>);

enum Field<'a> {
    Number(u64),
    Octets(&'a [u8]),
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, more) = rest.split_first().unwrap();
        *rest = more;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number that does not end")
}

impl<'a> Message<'a> {
    fn read(mut rest: &'a [u8]) -> Self {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let tag = varint(&mut rest);
            let len = match tag & 7 {
                0 => {
                    fields.push((tag >> 3, Field::Number(varint(&mut rest))));
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut rest)).unwrap(),
                5 => 4,
                other => panic!("wire type {other}"),
            };
            let (octets, more) = rest.split_at(len);
            rest = more;
            fields.push((tag >> 3, Field::Octets(octets)));
        }
        Self(fields)
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |(found, field)| match field {
            Field::Octets(octets) if *found == number => Some(*octets),
            _ => None,
        })
    }

    fn one(&self, number: u64) -> &'a [u8] {
        self.all(number).next().unwrap_or_default()
    }

    fn text(&self, number: u64) -> String {
        String::from_utf8(self.one(number).to_vec()).unwrap()
    }

    /// Attributes: KeyValue { key = 1, value = 2: AnyValue { string = 1, int = 3 } }.
    fn attributes(&self, number: u64) -> BTreeMap<String, String> {
        let pair = |octets| {
            let pair = Message::read(octets);
            let value = Message::read(pair.one(2));
            let number = value.0.iter().find_map(|(_, field)| match field {
                Field::Number(number) => Some(number.to_string()),
                Field::Octets(_) => None,
            });
            (pair.text(1), number.unwrap_or_else(|| value.text(1)))
        };
        self.all(number).map(pair).collect()
    }
}

/// The spans of an ExportTraceServiceRequest (opentelemetry-proto, trace/v1).
fn spans(body: &[u8]) -> Vec<Seen> {
    let mut all = Vec::new();
    for batch in Message::read(body).all(1).map(Message::read) {
        let resource = Message::read(batch.one(1)).attributes(1);
        for span in batch.all(2).flat_map(|scope| Message::read(scope).0) {
            let (2, Field::Octets(span)) = span else { continue };
            let span = Message::read(span);
            all.push(Seen {
                service: resource["service.name"].clone(),
                trace: hex(span.one(1)),
                id: hex(span.one(2)),
                parent: hex(span.one(4)),
                name: span.text(5),
                fields: span.attributes(9),
            });
        }
    }
    all
}

/// Reads what a collector is sent.
fn collector() -> (Server, mpsc::UnboundedReceiver<Seen>) {
    let (sender, received) = mpsc::unbounded_channel();
    let take = move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            assert_eq!(request.uri().path(), "/v1/traces");
            assert_eq!(request.headers()["content-type"], "application/x-protobuf");
            assert_eq!(request.headers()["x-key"], "secret");
            let body = request.into_body().collect().await?.to_bytes();
            for span in spans(&body) {
                // Nobody may read any more.
                let _ = sender.send(span);
            }
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::new())))
        }
    };
    let server = Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), ClearTrust::None)
        .start(tower::service_fn(take))
        .unwrap();
    (server, received)
}

/// What the origin was told of the trace: its id, the parent's, the flags.
fn told(answer: &str) -> [&str; 3] {
    let line = answer.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap();
    let parts: Vec<_> = line.trim().split('-').collect();
    assert_eq!(parts.first(), Some(&"00"), "{line}");
    [parts[1], parts[2], parts[3]]
}

async fn get(to: SocketAddr, target: &str, host: &str, fields: &str) -> String {
    let tcp = TcpStream::connect(to).await.unwrap();
    let text = format!("GET {target} HTTP/1.1\nHost: {host}\nConnection: close\n{fields}\n");
    exchange(tcp, &text).await
}

#[tokio::test]
async fn a_trace_goes_from_the_program_through_agent_and_gateway_to_the_origin() {
    let (collector, mut received) = collector();
    let (ca, one, place) = (Authority::new(), origin("one"), Place::new());
    place.certificate(&ca, "a", &["localhost"]);
    let config = place.config(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[listen]]\naddress = '127.0.0.1:0'\n\
         protocol = 'cleartext'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n\
         [upstreams.app]\nservers = ['{}']\n[[route]]\npath = '/api'\nupstream = 'app'\n\
         [forward]\nallow = ['127.0.0.0/8']\nusers = {{ ann = \
         'sha256:7a22da1ddf51a945bde6a3e940cdf91c9815108dc7235fe60da782dec55fb883' }}\n\
         [telemetry]\nendpoint = 'http://{}'\nservice = 'tested'\nheaders = {{ x-key = 'secret' }}\n",
        url(&one),
        collector.local_addrs()[0]
    ));
    let exporter = Exporter::start(&config.telemetry, "smig-gateway").unwrap();
    let subscriber = tracing_subscriber::registry().with(exporter.layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let gateway = smig_gateway::front::Gateway::start(config).unwrap();
    let [tls, clear]: [SocketAddr; 2] =
        gateway.listeners().map(|(address, _)| address).collect::<Vec<_>>().try_into().unwrap();
    let spec = AgentSpec {
        credentials: Credentials::bearer("a-long-secret"),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..AgentSpec::new(Origin::https("localhost", tls.port()))
    };
    let client = agent::client().trust(Trust::Pem(ca.pem.clone().into()));
    let agent = Agent::start(spec, client).await.unwrap();

    let origin = one.local_addrs()[0].to_string();
    let fields = format!("traceparent: 00-{TRACE}-{PARENT}-01\ntracestate: a=b\n");
    let target = format!("http://{origin}/x");
    let answer = get(agent.http_addrs()[0], &target, &origin, &fields).await;
    assert_status(&answer, 200);
    assert!(answer.contains("tracestate: a=b"), "{answer}");
    let [trace, parent, flags] = told(&answer);
    assert_eq!((trace, flags), (TRACE, "01"));
    let mut all = vec![received.recv().await.unwrap(), received.recv().await.unwrap()];
    all.sort_by_key(|span| span.parent != PARENT);
    let [by_agent, by_gateway] = &all[..] else { panic!("{all:?}") };
    for span in &all {
        assert_eq!((span.service.as_str(), span.trace.as_str()), ("tested", TRACE), "{span:?}");
        assert_eq!((span.name.as_str(), &span.fields["url.path"][..]), ("GET", "/x"));
        assert_eq!(span.fields["server.address"], "127.0.0.1");
        assert_eq!(span.fields["http.response.status_code"], "200");
        assert!(span.fields["http.response.body.size"].parse::<u64>().unwrap() > 0, "{span:?}");
    }
    assert_eq!((by_agent.parent.as_str(), &by_gateway.parent), (PARENT, &by_agent.id));
    assert_eq!(parent, by_gateway.id);

    // A trace that nobody wants is passed on, and not sent; a request without one begins one.
    let fields = format!("traceparent: 00-{UNSAMPLED}-{PARENT}-00\n");
    let answer = get(clear, "/api/y", "localhost", &fields).await;
    let [trace, parent, flags] = told(&answer);
    assert_eq!((trace, flags), (UNSAMPLED, "00"));
    assert_ne!(parent, PARENT);
    let answer = get(clear, "/api/z", "localhost", "").await;
    let [trace, parent, flags] = told(&answer);
    assert_eq!(flags, "01");
    let last = received.recv().await.unwrap();
    assert_eq!((&last.trace[..], &last.id[..], &last.parent[..]), (trace, parent, ""));
    assert_eq!((&last.name[..], &last.fields["smig.upstream"][..]), ("GET /api", "app"));
    exporter.shutdown().await.unwrap();
    assert!(received.try_recv().is_err(), "nothing else was sent");
}
