//! The admin port over real sockets: page, events, sessions, metrics, health, and access control.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use smig::{
    BoxError, Cleartext, CleartextTrust, Client, Incoming, MigrationHint, Server, ServerBuilder,
};
use smig_admin::{
    self as admin, Admin, AdminError, AdminObserver, AdminSpec, AdminTarget, ReportedStats,
    StatsSource, TunnelReport, UpstreamServerReport,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LARGE_BYTES: usize = 2 << 20;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// `/big` migrates; all other responses are small.
async fn handle(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, BoxError> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
    if request.uri().path() == "/big" {
        *response.body_mut() = Full::new(vec![7; LARGE_BYTES].into());
        response.extensions_mut().insert(MigrationHint::Migrate);
    }
    Ok(response)
}

fn server_builder(observer: &Arc<AdminObserver>) -> ServerBuilder {
    Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::TrustedNetwork)
        .workers(NonZeroUsize::MIN)
        .observer(observer.clone())
        .request_label_limit(admin::MAX_LABEL_BYTES)
}

fn start_admin(target: AdminTarget) -> Admin {
    admin::start(&AdminSpec { listen: loopback() }, target).unwrap()
}

struct AdminFixture {
    server: Server,
    admin: Admin,
    /// A client over HTTP/2.
    client: Client,
}

fn start_fixture(configure: impl FnOnce(AdminTarget) -> AdminTarget) -> AdminFixture {
    let observer = AdminObserver::new();
    let server = server_builder(&observer).start(tower::service_fn(handle)).unwrap();
    let admin = start_admin(configure(AdminTarget::new("smig gateway", server.view(), observer)));
    let mut config = smig::Config::client();
    // A small window, so that the big response lasts as long as it is not read.
    config.stream_window = 128 << 10;
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork))
        .engine(config)
        .build()
        .unwrap();
    AdminFixture { server, admin, client }
}

impl AdminFixture {
    async fn get(&self, path: &str) -> Response<Incoming> {
        let url = format!("http://{}{path}", self.server.local_addrs()[0]);
        self.client
            .request(Request::get(url).body(Full::<Bytes>::default()).unwrap())
            .await
            .unwrap()
    }

    async fn get_admin(&self, path: &str) -> (StatusCode, Response<Bytes>) {
        get(self.admin.local_addr(), path).await
    }
}

/// Sends a request to the admin port over HTTP/1.1.
async fn get(addr: SocketAddr, path: &str) -> (StatusCode, Response<Bytes>) {
    let client = Client::builder().build().unwrap();
    let request =
        Request::get(format!("http://{addr}{path}")).body(Full::<Bytes>::default()).unwrap();
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, Response::from_parts(parts, body))
}

/// Reads server-sent events.
struct EventReader {
    body: Incoming,
    text: String,
    _client: Client,
}

impl EventReader {
    async fn open(addr: SocketAddr) -> Result<Self, StatusCode> {
        let client = Client::builder().build().unwrap();
        let request =
            Request::get(format!("http://{addr}/events")).body(Full::<Bytes>::default()).unwrap();
        let response = client.request(request).await.unwrap();
        if response.status() != StatusCode::OK {
            return Err(response.status());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Self { body: response.into_body(), text: String::new(), _client: client })
    }

    async fn next_matching(&mut self, event: &str, is_match: impl Fn(&Value) -> bool) -> Value {
        loop {
            while let Some((record, rest)) = self.text.split_once("\n\n") {
                let (record, rest) = (record.to_owned(), rest.to_owned());
                self.text = rest;
                let line = |name: &str| {
                    let mut lines = record.lines();
                    lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
                };
                if line("event: ").as_deref() != Some(event) {
                    continue;
                }
                let data = serde_json::from_str(&line("data: ").unwrap()).unwrap();
                if is_match(&data) {
                    return data;
                }
            }
            let frame = self.body.frame().await.expect("events do not end").unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }
}

#[tokio::test]
async fn a_migration_is_in_events_and_sessions() {
    let fixture = start_fixture(|target| target);
    let mut events = EventReader::open(fixture.admin.local_addr()).await.unwrap();
    let hello = events.next_matching("hello", |_| true).await;
    assert_eq!(hello["title"], "smig gateway");
    let small = fixture.get("/small").await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(small, "hello");
    let snapshot =
        events.next_matching("snapshot", |snapshot| snapshot["ended"][0].is_array()).await;
    // On a busy machine, the session itself may be in the next snapshot only.
    let session = snapshot["ended"][0][0].clone();
    assert!(session.is_string(), "{snapshot}");

    let big_response = fixture.get("/big").await;
    let migrated_entry = events.next_matching("log", |entry| entry["kind"] == "migrated").await;
    assert_eq!(migrated_entry["session"], session);
    assert!(
        migrated_entry["text"].as_str().unwrap().contains("as its hint requests"),
        "{migrated_entry}"
    );
    let has_migrated = |snapshot: &Value| snapshot["sessions"][0]["streams"][0]["migrations"] == 1;
    let snapshot = events.next_matching("snapshot", has_migrated).await;
    let stream = &snapshot["sessions"][0]["streams"][0];
    assert_eq!((&stream["path"], &stream["length"]), (&"/big".into(), &LARGE_BYTES.into()));
    assert_eq!(
        (&stream["key"], &stream["connection"]),
        (&migrated_entry["stream"], &migrated_entry["to"])
    );

    let (status, sessions_response) = fixture.get_admin("/api/sessions").await;
    assert_eq!(status, StatusCode::OK);
    let sessions_json: Value = serde_json::from_slice(sessions_response.body()).unwrap();
    assert_eq!(sessions_json["sessions"][0]["id"], session);
    let connections = sessions_json["sessions"][0]["connections"].as_array().unwrap().iter();
    assert_eq!(connections.filter(|conn| conn["role"] == "bulk").count(), 1, "{sessions_json}");
    // A later reader receives the earlier events.
    let mut later = EventReader::open(fixture.admin.local_addr()).await.unwrap();
    assert_eq!(
        later.next_matching("log", |entry| entry["kind"] == "migrated").await,
        migrated_entry
    );
    drop(big_response);
}

struct FakeStats;

impl StatsSource for FakeStats {
    fn report(&self, stats: &mut ReportedStats) {
        for (server, healthy) in [("http://a", true), ("http://b", false)] {
            stats.upstream_servers.push(UpstreamServerReport {
                upstream: "app".into(),
                server: server.into(),
                healthy,
                active: 2,
                connections: 3,
                attempts: 40,
                failures: 5,
            });
        }
        stats.tunnels.push(TunnelReport {
            kind: "connect",
            open: 1,
            opened: 6,
            migrated: 2,
            bytes_from_client: 70,
            bytes_to_client: 80,
            ended: vec![("completed", 4), ("client", 1)],
            durations: vec![(1.0, 3), (60.0, 1), (f64::INFINITY, 1)],
            duration_sum_seconds: 90.5,
        });
    }
}

#[tokio::test]
async fn metrics_have_types_units_and_values() {
    let fixture = start_fixture(|target| target.with_stats(Arc::new(FakeStats)));
    fixture.get("/small").await.into_body().collect().await.unwrap();
    // A stream ends when its last byte is sent. The client may read that byte before the server has counted the end.
    while fixture.server.stats().streams_completed == 0 {
        tokio::task::yield_now().await;
    }
    let (status, metrics) = fixture.get_admin("/metrics").await;
    assert_eq!(status, StatusCode::OK);
    let content_type = metrics.headers()["content-type"].to_str().unwrap();
    assert!(
        content_type.starts_with("application/openmetrics-text; version=1.0.0"),
        "{content_type}"
    );
    let text = std::str::from_utf8(metrics.body()).unwrap();
    for line in [
        "# TYPE smig_request_duration_seconds histogram",
        "# UNIT smig_request_duration_seconds seconds",
        "smig_request_duration_seconds_count{size=\"small\"} 1",
        "smig_request_duration_seconds_count{size=\"large\"} 0",
        "smig_body_bytes_total{direction=\"sent\"} 5",
        "smig_streams_completed_total 1",
        "smig_ready 1",
        "smig_upstream_healthy{upstream=\"app\",server=\"http://a\"} 1",
        "smig_upstream_healthy{upstream=\"app\",server=\"http://b\"} 0",
        "smig_upstream_requests_total{upstream=\"app\",server=\"http://b\"} 40",
        "smig_tunnels{kind=\"connect\"} 1",
        "smig_tunnel_bytes_total{kind=\"connect\",direction=\"sent\"} 80",
        "smig_tunnels_migrated_total{kind=\"connect\"} 2",
        "smig_tunnels_ended_total{kind=\"connect\",reason=\"client\"} 1",
        "smig_tunnel_duration_seconds_bucket{le=\"60.0\",kind=\"connect\"} 4",
        "smig_tunnel_duration_seconds_bucket{le=\"+Inf\",kind=\"connect\"} 5",
        "smig_tunnel_duration_seconds_sum{kind=\"connect\"} 90.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    // Each name is described once, before its values.
    let mut type_lines: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let type_line_count = type_lines.len();
    type_lines.sort_unstable();
    type_lines.dedup();
    assert_eq!(type_lines.len(), type_line_count, "{text}");
}

#[tokio::test]
async fn readiness_follows_the_check_and_health_does_not() {
    let is_draining = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_draining);
    let fixture = start_fixture(|target| {
        target.with_readiness(move || {
            if flag.load(Ordering::Relaxed) { Err("draining".to_owned()) } else { Ok(()) }
        })
    });
    assert_eq!(fixture.get_admin("/readyz").await.0, StatusCode::OK);
    is_draining.store(true, Ordering::Relaxed);
    let (status, response) = fixture.get_admin("/readyz").await;
    assert_eq!(
        (status, &response.body()[..]),
        (StatusCode::SERVICE_UNAVAILABLE, &b"draining\n"[..])
    );
    assert_eq!(fixture.get_admin("/healthz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_page_has_a_content_security_policy() {
    let fixture = start_fixture(|target| target);
    let (status, page) = fixture.get_admin("/").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(fixture.get_admin("/nothing").await.0, StatusCode::NOT_FOUND);
}

/// Sends a raw request and returns the response's status line.
async fn fetch_status_line(addr: SocketAddr, request: &str) -> String {
    let mut tcp = TcpStream::connect(addr).await.unwrap();
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    tcp.read_to_string(&mut response).await.unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn only_local_read_only_requests_are_accepted() {
    let fixture = start_fixture(|target| target);
    let addr = fixture.admin.local_addr();
    let status_line = async |method: &str, host: &str| {
        fetch_status_line(
            addr,
            &format!(
                "{method} /api/sessions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
            ),
        )
        .await
    };
    assert!(status_line("GET", "localhost").await.contains(" 200 "));
    assert!(status_line("GET", "evil.example").await.contains(" 421 "));
    assert!(status_line("POST", "localhost").await.contains(" 405 "));
    let non_loopback = AdminSpec { listen: "0.0.0.0:0".parse().unwrap() };
    let target = AdminTarget::new("smig gateway", fixture.server.view(), AdminObserver::new());
    let error = admin::start(&non_loopback, target).unwrap_err();
    assert!(matches!(error, AdminError::NotLocal(_)), "{error}");
}

#[tokio::test]
async fn event_readers_are_limited() {
    let fixture = start_fixture(|target| target);
    let addr = fixture.admin.local_addr();
    let mut readers = Vec::new();
    let refused_status = loop {
        match EventReader::open(addr).await {
            Ok(mut reader) => {
                reader.next_matching("hello", |_| true).await;
                readers.push(reader);
            }
            Err(status) => break status,
        }
    };
    assert_eq!((refused_status, readers.len()), (StatusCode::SERVICE_UNAVAILABLE, 16));
    drop(readers);
    // Their slots are free once the server has noticed the disconnects.
    while EventReader::open(addr).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn sessions_of_a_client_are_shown() {
    let fixture = start_fixture(|target| target);
    let unread_response = fixture.get("/big").await;
    let admin =
        start_admin(AdminTarget::new("smig agent", fixture.client.clone(), AdminObserver::new()));
    let (_, sessions_response) = get(admin.local_addr(), "/api/sessions").await;
    let sessions_json: Value = serde_json::from_slice(sessions_response.body()).unwrap();
    assert_eq!(sessions_json["sessions"][0]["open_streams"], 1, "{sessions_json}");
    drop(unread_response);
}
