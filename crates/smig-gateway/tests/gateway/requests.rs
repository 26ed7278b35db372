//! How requests are routed and changed.

use crate::support::{
    GatewayDir, TestCa, TlsDialer, address, assert_status, exchange, get, get_over_http2, origin,
    send_request, url, wait_for_file, within,
};
use http::Request;
use smig::{Cleartext, CleartextTrust, Client, Origin, Protocol};
use smig_proxy::tunnel::{ConnectResponse, open};
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const CLEARTEXT_LISTENER: &str = "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n";

#[tokio::test]
async fn routes_match_by_host_and_path() {
    let (origin_one, origin_other) = (origin("one"), origin("other"));
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}
        [upstreams.one]
        servers = ['{}']
        [upstreams.other]
        servers = ['{}']
        [[route]]
        host = 'a.example'
        upstream = 'one'
        [[route]]
        host = 'a.example'
        path = '/v2/'
        prefix_rewrite = '/new/'
        upstream = 'other'
        [[route]]
        host = '*.a.example'
        redirect = 'https://a.example'
        [[route]]
        host = 'b.example'
        path = '/private'
        status = 403
        body = 'not for you'",
        url(&origin_one),
        url(&origin_other)
    ));
    let addr = address(&gateway);
    let answer = get(addr, "a.example", "/x?y", "").await;
    assert_status(&answer, 200);
    assert!(answer.contains("one\nGET /x?y\n"), "{answer}");
    let answer = get(addr, "A.example:80", "/v2/x", "").await;
    assert!(answer.contains("other\nGET /new/x\n"), "{answer}");
    let answer = get(addr, "www.a.example", "/x?y", "").await;
    assert_status(&answer, 308);
    assert!(answer.contains("location: https://a.example/x?y\r\n"), "{answer}");
    let answer = get(addr, "b.example", "/private/x", "").await;
    assert_status(&answer, 403);
    assert!(answer.ends_with("not for you\n"), "{answer}");
    assert_status(&get(addr, "b.example", "/", "").await, 404);
    assert_status(&get(addr, "c.example", "/", "").await, 404);
}

#[tokio::test]
async fn gateway_errors_become_grpc_statuses() {
    let closed_port = ReservedPort::new();
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}
        [upstreams.gone]
        servers = ['h2c://{closed_port}']
        [[route]]
        host = 'a.example'
        path = '/gone.Service/'
        upstream = 'gone'
        [[route]]
        host = 'a.example'
        path = '/private.Service/'
        status = 403
        body = 'not for you'
        [[route]]
        host = 'a.example'
        path = '/moved'
        redirect = 'https://a.example'"
    ));
    let addr = address(&gateway);
    for (path, status, message) in [
        ("/gone.Service/Call", 14, "Bad Gateway (connection_refused)"),
        ("/private.Service/Call", 7, "not for you"),
        ("/none.Service/Call", 12, "no route matches"),
    ] {
        let fields = "Content-Type: application/grpc+proto\nContent-Length: 0\n";
        let call_response = send_request("POST", addr, "a.example", path, fields).await;
        assert_status(&call_response, 200);
        for line in [
            "content-type: application/grpc".to_owned(),
            format!("grpc-status: {status}"),
            format!("grpc-message: {message}"),
        ] {
            assert!(
                call_response.contains(&format!("{line}\r\n")),
                "{path}: {line}: {call_response}"
            );
        }
        assert!(call_response.ends_with("\r\n\r\n"), "{path}: a body: {call_response}");
        let non_grpc_response =
            get(addr, "a.example", path, "Content-Type: application/json\n").await;
        assert!(
            !non_grpc_response.contains("grpc-status")
                && !non_grpc_response.starts_with("HTTP/1.1 200"),
            "{non_grpc_response}"
        );
        // gRPC calls are POST; for CONNECT, status 200 would mean that the tunnel is open.
        let get_response = get(addr, "a.example", path, fields).await;
        assert!(
            !get_response.contains("grpc-status") && !get_response.starts_with("HTTP/1.1 200"),
            "{get_response}"
        );
    }
    let moved = get(addr, "a.example", "/moved", "Content-Type: application/grpc\n").await;
    assert_status(&moved, 308);
}

/// To an extended CONNECT, 2xx means that the tunnel is open.
#[tokio::test]
async fn a_text_response_opens_no_websocket() {
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}
        [[route]]
        path = '/hello'
        status = 200
        body = 'hello'
        [[route]]
        path = '/private'
        status = 403"
    ));
    let addr = address(&gateway);
    let client = Client::builder()
        .cleartext(Cleartext::PriorKnowledge(CleartextTrust::None))
        .build()
        .unwrap();
    for (path, status) in [("/hello", 501), ("/private", 403)] {
        let mut request = Request::connect(format!("http://{addr}{path}")).body(()).unwrap();
        request.extensions_mut().insert(Protocol::new("websocket").unwrap());
        let target = Origin::http("127.0.0.1", addr.port());
        let opened = open(&client, &target, request).await.unwrap();
        let ConnectResponse::Refused(response) = opened else { panic!("{path} opened a tunnel") };
        assert_eq!(response.status(), status, "{path}");
    }
    assert_status(&get(addr, "a", "/hello", "").await, 200);
}

#[tokio::test]
async fn ambiguous_requests_are_rejected() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}[upstreams.one]\nservers = ['{}']\n[[route]]\nupstream = 'one'\n\
         request_headers = {{ set = {{ x-user = 'guest' }} }}\n",
        url(&origin_one)
    ));
    let addr = address(&gateway);
    assert_status(&get(addr, "a", "/a/../b", "").await, 400);
    assert_status(&get(addr, "a", "/a/%2e%2E/b", "").await, 400);
    assert_status(&get(addr, "a", "/a/..;/b", "").await, 400);
    assert_status(&get(addr, "a", "/", "Host: b\n").await, 400);
    assert_status(&get(addr, "a@b", "/", "").await, 400);
    // Connection must not name the gateway's fields: they would be removed.
    assert_status(&get(addr, "a", "/", "Connection: x-forwarded-for\n").await, 400);
    assert_status(&get(addr, "a", "/", "Connection: X-User\n").await, 400);
    assert_status(&get(addr, "a", "/", "Connection: traceparent\n").await, 400);
    // Servers that map fields to variables take it for the field that a rule sets.
    assert_status(&get(addr, "a", "/", "X_User: root\n").await, 400);
    let asterisk = TcpStream::connect(addr).await.unwrap();
    let text = "OPTIONS * HTTP/1.1\nHost: a\nConnection: close\n\n";
    assert_status(&exchange(asterisk, text).await, 200);
    let without_host = TcpStream::connect(addr).await.unwrap();
    assert_status(&exchange(without_host, "GET / HTTP/1.1\nConnection: close\n\n").await, 400);
    let tunnel = TcpStream::connect(addr).await.unwrap();
    let answer = exchange(tunnel, "CONNECT a:1 HTTP/1.1\nHost: a:1\nConnection: close\n\n").await;
    assert_status(&answer, 405);
    assert_eq!(origin_one.stats().streams_opened, 1);
}

/// The path that is checked is the path that is sent.
#[tokio::test]
async fn a_query_without_a_path_stays_a_query() {
    let (origin_one, origin_other) = (origin("one"), origin("other"));
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}
        [upstreams.one]
        servers = ['{}']
        [upstreams.other]
        servers = ['{}']
        [[route]]
        host = 'a.example'
        prefix_rewrite = '/public'
        upstream = 'one'
        [[route]]
        host = 'b.example'
        upstream = 'other'",
        url(&origin_one),
        url(&origin_other).replace("http:", "h2c:")
    ));
    for (host, query, expected) in [
        ("a.example", "../admin", "one\nGET /public?../admin\n"),
        ("a.example", "x=1", "one\nGET /public?x=1\n"),
        ("b.example", "x=1", "other\nGET http://b.example/?x=1\n"),
    ] {
        let stream = TcpStream::connect(address(&gateway)).await.unwrap();
        let text =
            format!("GET http://{host}?{query} HTTP/1.1\nHost: {host}\nConnection: close\n\n");
        let answer = exchange(stream, &text).await;
        assert_status(&answer, 200);
        assert!(answer.contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn forwarding_fields_are_replaced_and_rules_are_applied() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}
        [upstreams.one]
        servers = ['{}']
        [[route]]
        upstream = 'one'
        request_headers = {{ remove = ['x-debug'], set = {{ x-gateway = 'smig' }} }}
        response_headers = {{ remove = ['server'], add = {{ x-added = 'yes' }} }}
        [forwarded]
        fields = 'both'",
        url(&origin_one)
    ));
    let fields = "X-Forwarded-For: 1.1.1.1\nForwarded: for=1.1.1.1\nX-Real-IP: 1.1.1.1\n\
                  X-Debug: 1\nX-Gateway: me\n";
    let answer = get(address(&gateway), "a.example", "/", fields).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(body.contains("x-forwarded-for: 127.0.0.1\n"), "{body}");
    assert!(body.contains("x-forwarded-proto: http\n"), "{body}");
    assert!(body.contains("x-forwarded-host: a.example\n"), "{body}");
    assert!(body.contains("forwarded: for=127.0.0.1;proto=http;host=\"a.example\"\n"), "{body}");
    assert!(body.contains("x-gateway: smig\n") && !body.contains("via:"), "{body}");
    assert!(!body.contains("1.1.1.1") && !body.contains("x-debug"), "{body}");
    assert!(head.contains("x-added: yes") && !head.contains("server:"), "{head}");
}

#[tokio::test]
async fn rules_apply_to_via() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    for (rule, expected) in
        [("remove = ['via']", &[][..]), ("set = { via = '1.1 other' }", &["via: 1.1 other"])]
    {
        let gateway = dir.start_gateway(&format!(
            "{CLEARTEXT_LISTENER}[upstreams.one]\nservers = ['{}']\n[[route]]\nupstream = 'one'\n\
             request_headers = {{ {rule} }}\n",
            url(&origin_one)
        ));
        let answer = get(address(&gateway), "a.example", "/", "Via: 1.0 before\n").await;
        assert_status(&answer, 200);
        let via: Vec<_> = answer.lines().filter(|line| line.starts_with("via:")).collect();
        assert_eq!(via, expected, "{rule}");
    }
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_cover_is_misdirected() {
    let (origin_one, ca) = (origin("one"), TestCa::new());
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a.example", "b.example"]);
    let gateway = dir.start_gateway(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n\
         [upstreams.one]\nservers = ['{}']\n[[route]]\nupstream = 'one'\n",
        url(&origin_one)
    ));
    let addr = address(&gateway);
    let stream = TlsDialer::new(&ca, "h2").connect(addr, "a.example").await.unwrap();
    let urls = ["https://a.example/", "https://b.example/", "https://c.example/"];
    let answers = get_over_http2(stream, &urls.map(str::to_owned)).await;
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 421]);

    let stream = TlsDialer::new(&ca, "http/1.1").connect(addr, "a.example").await.unwrap();
    let text = "GET / HTTP/1.1\nHost: c.example\nConnection: close\n\n";
    assert_status(&exchange(stream, text).await, 421);
}

#[tokio::test]
async fn cleartext_is_redirected_to_https() {
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(
        "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\nredirect_to_https = 8443\n\
         [[route]]\nstatus = 200\n",
    );
    let answer = get(address(&gateway), "a.example:80", "/x?y", "").await;
    assert_status(&answer, 308);
    assert!(answer.contains("location: https://a.example:8443/x?y\r\n"), "{answer}");
}

#[tokio::test]
async fn each_response_is_logged_as_one_line() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}[upstreams.one]\nservers = ['{}']\n[[route]]\nupstream = 'one'\n\
         [access_log]\nformat = 'json'\nfile = 'access.log'\n",
        url(&origin_one)
    ));
    let fields = "User-Agent: a \"test\"\n";
    get(address(&gateway), "a.example", "/bytes/70000", fields).await;
    let text = wait_for_file(&dir.path("access.log"), |text| text.ends_with('\n')).await;
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["path"], "/bytes/70000");
    assert_eq!(line["host"], "a.example");
    assert_eq!(line["status"], 200);
    assert_eq!(line["bytes_sent"], 70_000);
    assert_eq!(line["outcome"], "complete");
    assert_eq!(line["upstream"], "one");
    assert_eq!(line["user_agent"], "a \"test\"");
}

#[tokio::test]
async fn a_request_that_is_cancelled_before_its_response_is_logged_with_its_upstream() {
    let silent_origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = GatewayDir::new();
    let gateway = dir.start_gateway(&format!(
        "{CLEARTEXT_LISTENER}[upstreams.one]\nservers = ['http://{}']\n[[route]]\nupstream = 'one'\n\
         [access_log]\nformat = 'json'\nfile = 'access.log'\n",
        silent_origin.local_addr().unwrap()
    ));
    let mut client = TcpStream::connect(address(&gateway)).await.unwrap();
    client.write_all(b"GET /slow HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    // The request has reached its upstream.
    let (mut upstream, _) = within("a connection", silent_origin.accept()).await.unwrap();
    assert!(within("a request", upstream.read(&mut [0; 4096])).await.unwrap() > 0);
    drop(client);
    let text = wait_for_file(&dir.path("access.log"), |text| text.ends_with('\n')).await;
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["path"], "/slow");
    assert_eq!(line["outcome"], "aborted");
    assert!(line["status"].is_null(), "{line}");
    assert_eq!(line["upstream"], "one");
}
