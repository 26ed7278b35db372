//! Origins and gateways.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use smig::{BoxError, CleartextTrust, Incoming, Server};
use smig_gateway::Gateway;
use smig_gateway::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const SPAN: &str = "00f067aa0ba902b7";

/// Responds with the trace fields that it received; below /status/ with that status, below /bytes/ with that many
/// bytes.
pub(crate) fn origin() -> Server {
    let answer = async |request: Request<Incoming>| {
        let mut response = Response::new(Full::default());
        let path = request.uri().path();
        if let Some(status) = path.strip_prefix("/status/") {
            *response.status_mut() = status.parse()?;
        } else if let Some(length) = path.strip_prefix("/bytes/") {
            *response.body_mut() = Full::new(Bytes::from(vec![7; length.parse()?]));
        } else {
            let all = |name| request.headers().get_all(name).iter();
            let values = all("traceparent").chain(all("tracestate"));
            let values: Vec<_> = values.map(|value| value.to_str()).collect::<Result<_, _>>()?;
            *response.body_mut() = Full::new(Bytes::from(values.join("|")));
        }
        Ok::<_, BoxError>(response)
    };
    Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(tower::service_fn(answer))
        .unwrap()
}

/// A gateway in front of an origin, whose responses below /moved/ migrate.
pub(crate) fn gateway(origin: &Server, extra_config: &str) -> (Gateway, SocketAddr) {
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'trusted-cleartext'\n\
         [upstreams.app]\nservers = ['http://{}']\n\
         [[route]]\nupstream = 'app'\n\
         [[route]]\npath = '/moved/'\nprefix_rewrite = '/bytes/'\nupstream = 'app'\nmigrate = 'always'\n\
         [server]\nworkers = 1\n{extra_config}",
        origin.local_addrs()[0]
    );
    start_gateway(&text)
}

pub(crate) fn start_gateway(text: &str) -> (Gateway, SocketAddr) {
    let config = Config::parse(text, Path::new("gateway.toml"));
    let config = config.unwrap_or_else(|faults| panic!("{faults:?}"));
    let gateway = Gateway::start(config).unwrap();
    let address = gateway.listeners().next().unwrap().0;
    (gateway, address)
}

/// Returns the configuration section for a collector.
pub(crate) fn telemetry(endpoint: &str, extra_config: &str) -> String {
    format!("[telemetry]\nendpoint = '{endpoint}'\nheaders = {{ x-key = 'a key' }}\n{extra_config}")
}

/// Sends a GET over HTTP/1.1 and returns the response's body.
pub(crate) async fn get(addr: SocketAddr, target: &str, fields: &str) -> String {
    let mut tcp = TcpStream::connect(addr).await.unwrap();
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\n{fields}\r\n");
    tcp.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}
