//! A gateway that crashes: clients and origins receive resets, no resource leaks, and the agent
//! reconnects when the gateway is back.

#[path = "agent/support.rs"]
mod support;

use std::io::ErrorKind;
use std::time::Duration;

use smig::Origin;
use smig_agent::UplinkState;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use support::{Gateway, connect, loopback, origin, read_head, serve, spec, wait_for_state};

const TUNNEL_COUNT: usize = 20;

/// Returns the number of tasks of this test's runtime.
fn count_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Returns the number of sockets of this process.
fn count_sockets() -> usize {
    let is_socket = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_socket).count()
}

/// Waits until the count is at most `max_count`.
async fn wait_until_at_most(name: &str, max_count: usize, count: impl Fn() -> usize) {
    for _ in 0..6000 {
        if count() <= max_count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} {name}, more than {max_count}", count());
}

#[tokio::test]
async fn a_crashed_gateway_leaks_no_tasks_or_sockets() {
    let mut gateway = Gateway::start(spec());
    gateway.origin = Origin::https("127.0.0.1", gateway.origin.port());
    let agent = gateway.agent(Vec::new()).await;
    wait_for_state(&agent, |link| matches!(link, UplinkState::Up(_))).await;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let target = listener.local_addr().unwrap();
    let (tasks_before, sockets_before) = (count_tasks(), count_sockets());

    let mut tunnels = Vec::new();
    for _ in 0..TUNNEL_COUNT {
        let (tcp, head) = connect(&agent, target).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        tunnels.push((tcp, listener.accept().await.unwrap().0));
    }
    // A response to an HTTP/1.0 request, delimited by the end of the connection: half of it must not count as
    // complete.
    let mut incomplete_socket = TcpStream::connect(agent.http_addrs()[0]).await.unwrap();
    incomplete_socket
        .write_all(format!("GET http://{target}/ HTTP/1.0\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let (mut server_socket, _) = listener.accept().await.unwrap();
    read_head(&mut server_socket).await;
    server_socket.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf").await.unwrap();
    let head = read_head(&mut incomplete_socket).await;
    assert!(head.contains("200"), "{head}");
    incomplete_socket.read_exact(&mut [0; 4]).await.unwrap();

    let gateway_addr = gateway.server.local_addrs()[0];
    let Gateway { server, identity, client, tunnels: tunnel_counters, .. } = gateway;
    drop(client);
    // Without grace, as in a crash.
    server.shutdown(Duration::ZERO).await.unwrap();
    for (mut client_socket, mut server_socket) in tunnels {
        let client_error = client_socket.read(&mut [0]).await.unwrap_err().kind();
        assert_eq!(client_error, ErrorKind::ConnectionReset);
        let server_error = server_socket.read(&mut [0]).await.unwrap_err().kind();
        assert_eq!(server_error, ErrorKind::ConnectionReset);
    }
    let error = incomplete_socket.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop((incomplete_socket, server_socket));

    let (_, head) = connect(&agent, target).await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    wait_for_state(&agent, |link| matches!(link, UplinkState::Unreachable(_))).await;
    wait_until_at_most("tasks", tasks_before, count_tasks).await;
    wait_until_at_most("sockets", sockets_before, count_sockets).await;

    let server = serve(spec(), &tunnel_counters, gateway_addr, &identity);
    wait_for_state(&agent, |link| matches!(link, UplinkState::Up(_))).await;
    let (mut tcp, head) = connect(&agent, origin(support::echo).await).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    tcp.write_all(b"x").await.unwrap();
    assert_eq!(tcp.read_u8().await.unwrap(), b'x');
    drop(server);
}
