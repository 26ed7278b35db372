//! Tunnels: bytes both ways, half-close, resets, the idle timeout.

use std::io::ErrorKind;
use std::time::Duration;

use smig::ErrorCode;
use smig_admin::TunnelReport;
use smig_gateway::forward_proxy::ForwardProxySpec;
use smig_proxy::tunnel::{Socket, TunnelError, relay};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::{Gateway, bytes, echo, loopback, origin, spec, wait_for_report};

/// Returns two connected sockets.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn large_transfers_go_both_ways_at_once() {
    let gateway = Gateway::start(spec());
    let stream = gateway.tunnel(origin(echo).await).await;
    let sent = bytes(8 << 20);
    let (mut read, mut write) = tokio::io::split(stream);
    let writing = tokio::spawn({
        let sent = sent.clone();
        async move {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
            write
        }
    });
    let mut received = Vec::new();
    read.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn the_client_can_half_close() {
    let gateway = Gateway::start(spec());
    // Responds when it has received the complete request.
    let answering = async |mut tcp: TcpStream| {
        let mut question = Vec::new();
        tcp.read_to_end(&mut question).await.unwrap();
        tcp.write_all(&question.len().to_be_bytes()).await.unwrap();
    };
    let mut stream = gateway.tunnel(origin(answering).await).await;
    stream.write_all(&bytes(100_000)).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read_u64().await.unwrap(), 100_000);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn the_origin_can_half_close() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let sent = bytes(100_000);
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
}

#[tokio::test]
async fn a_tcp_reset_is_a_stream_reset() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (tcp, _) = listener.accept().await.unwrap();
    socket2::SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).unwrap();
    drop(tcp);
    let error = stream.read(&mut [0]).await.unwrap_err();
    let error = error.get_ref().unwrap().downcast_ref::<smig::Error>().unwrap();
    assert_eq!(error.code(), Some(ErrorCode::ConnectError));
}

#[tokio::test]
async fn a_stream_reset_is_a_tcp_reset() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    stream.write_all(b"a").await.unwrap();
    assert_eq!(tcp.read_u8().await.unwrap(), b'a');
    drop(stream);
    let error = tcp.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reset_reaches_a_peer_that_does_not_read() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    let (mut read, mut write) = tcp.split();
    // More than all buffers on the path hold: the writer is blocked when the stream is reset.
    let writing = async {
        loop {
            if let Err(error) = write.write_all(&bytes(64 << 10)).await {
                return error.kind();
            }
        }
    };
    let resetting = async {
        stream.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
        drop(stream);
        read.read(&mut [0]).await.map_err(|error| error.kind())
    };
    let (written, _) = tokio::join!(writing, resetting);
    assert!(matches!(written, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{written}");
}

#[tokio::test]
async fn an_idle_tunnel_is_reset() {
    let idle = Some(Duration::from_millis(50));
    let gateway = Gateway::start(ForwardProxySpec { tunnel_idle_timeout: idle, ..spec() });
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    assert_eq!(tcp.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_relay_reports_its_bytes_and_its_end() {
    let ((mut a, near), (far, mut b)) = (pair().await, pair().await);
    let relaying = tokio::spawn(relay(Socket::new(near), Socket::new(far), None));
    a.write_all(b"abc").await.unwrap();
    a.shutdown().await.unwrap();
    let mut received = String::new();
    b.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "abc");
    b.write_all(b"de").await.unwrap();
    b.shutdown().await.unwrap();
    a.read_to_string(&mut received).await.unwrap();
    let outcome = relaying.await.unwrap();
    assert_eq!((outcome.a_to_b, outcome.b_to_a), (3, 2));
    assert!(outcome.end.is_ok());

    let ((a, near), (far, mut b)) = (pair().await, pair().await);
    let relaying = tokio::spawn(relay(Socket::new(near), Socket::new(far), None));
    socket2::SockRef::from(&a).set_linger(Some(Duration::ZERO)).unwrap();
    drop(a);
    assert_eq!(b.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(matches!(relaying.await.unwrap().end, Err(TunnelError::End { .. })));
}

#[tokio::test]
async fn a_relay_whose_task_is_dropped_resets_both_sides() {
    let ((mut a, near), (far, mut b)) = (pair().await, pair().await);
    let relaying = tokio::spawn(relay(Socket::new(near), Socket::new(far), None));
    a.write_all(b"a").await.unwrap();
    assert_eq!(b.read_u8().await.unwrap(), b'a');
    relaying.abort();
    assert_eq!(a.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(b.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn data_that_the_origin_sends_first_arrives() {
    let gateway = Gateway::start(spec());
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"220 hello\r\n").await.unwrap();
        let mut rest = Vec::new();
        tcp.read_to_end(&mut rest).await.unwrap();
        sender.take().unwrap().send(rest).unwrap();
    });
    let stream = gateway.tunnel(addr).await;
    let (mut read, mut write) = tokio::io::split(stream);
    let mut greeting = [0; 11];
    read.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 hello\r\n");
    write.write_all(b"QUIT\r\n").await.unwrap();
    write.shutdown().await.unwrap();
    assert_eq!(receiver.await.unwrap(), b"QUIT\r\n");
    assert_eq!(read.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn tunnels_are_reported_to_operators() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    let report_when = async |fits: fn(&TunnelReport) -> bool| {
        wait_for_report(&gateway.tunnels, "connect", fits).await
    };
    stream.write_all(b"abc").await.unwrap();
    tcp.read_exact(&mut [0; 3]).await.unwrap();
    let running = report_when(|one| one.bytes_in == 3).await;
    assert_eq!((running.open, running.opened, running.migrated, running.bytes_out), (1, 1, 0, 0));
    assert!(running.ended.iter().all(|(_, count)| *count == 0), "{running:?}");

    // A tunnel that transferred many bytes migrates, which is reported while it is open.
    let sent = bytes(400_000);
    let mut received = vec![0; sent.len()];
    let (written, read) = tokio::join!(tcp.write_all(&sent), stream.read_exact(&mut received));
    written.unwrap();
    read.unwrap();
    let migrated = report_when(|one| one.migrated == 1).await;
    assert_eq!((migrated.open, migrated.bytes_out), (1, 400_000));

    drop(tcp);
    drop(stream);
    let over = report_when(|one| one.open == 0).await;
    let broken: u64 =
        over.ended.iter().filter(|(reason, _)| *reason != "completed").map(|(_, n)| n).sum();
    assert_eq!((over.opened, over.migrated, broken), (1, 1, 1), "{over:?}");
    assert_eq!(over.durations.iter().map(|(_, count)| count).sum::<u64>(), 1);

    let mut stream = gateway.tunnel(origin(echo).await).await;
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let over = report_when(|one| one.open == 0 && one.opened == 2).await;
    assert!(over.ended.contains(&("completed", 1)), "{over:?}");
}
