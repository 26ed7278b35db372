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
    let first = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (first, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn large_transfers_go_both_ways_at_once() {
    let gateway = Gateway::start(spec());
    let stream = gateway.tunnel(origin(echo).await).await;
    let sent_data = bytes(8 << 20);
    let (mut read, mut write) = tokio::io::split(stream);
    let write_task = tokio::spawn({
        let sent = sent_data.clone();
        async move {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
            write
        }
    });
    let mut received = Vec::new();
    read.read_to_end(&mut received).await.unwrap();
    assert!(received == sent_data);
    drop(write_task.await.unwrap());
}

#[tokio::test]
async fn the_client_can_half_close() {
    let gateway = Gateway::start(spec());
    // Responds when it has received the complete request.
    let server_side = async |mut tcp: TcpStream| {
        let mut question = Vec::new();
        tcp.read_to_end(&mut question).await.unwrap();
        tcp.write_all(&question.len().to_be_bytes()).await.unwrap();
    };
    let mut stream = gateway.tunnel(origin(server_side).await).await;
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
    let sent_data = bytes(100_000);
    stream.write_all(&sent_data).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).await.unwrap();
    assert!(received == sent_data);
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
    let (write_error, _) = tokio::join!(writing, resetting);
    assert!(
        matches!(write_error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{write_error}"
    );
}

#[tokio::test]
async fn an_idle_tunnel_is_reset() {
    let idle_timeout = Some(Duration::from_millis(50));
    let gateway = Gateway::start(ForwardProxySpec { tunnel_idle_timeout: idle_timeout, ..spec() });
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut stream = gateway.tunnel(listener.local_addr().unwrap()).await;
    let (mut tcp, _) = listener.accept().await.unwrap();
    assert_eq!(tcp.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_relay_reports_its_bytes_and_its_end() {
    let ((mut client_peer, client_end), (remote_end, mut remote_peer)) =
        (pair().await, pair().await);
    let relay_task = tokio::spawn(relay(Socket::new(client_end), Socket::new(remote_end), None));
    client_peer.write_all(b"abc").await.unwrap();
    client_peer.shutdown().await.unwrap();
    let mut received = String::new();
    remote_peer.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "abc");
    remote_peer.write_all(b"de").await.unwrap();
    remote_peer.shutdown().await.unwrap();
    client_peer.read_to_string(&mut received).await.unwrap();
    let outcome = relay_task.await.unwrap();
    assert_eq!((outcome.bytes_to_remote, outcome.bytes_to_client), (3, 2));
    assert!(outcome.end.is_ok());

    let ((client_peer, client_end), (remote_end, mut remote_peer)) = (pair().await, pair().await);
    let relay_task = tokio::spawn(relay(Socket::new(client_end), Socket::new(remote_end), None));
    socket2::SockRef::from(&client_peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client_peer);
    assert_eq!(remote_peer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(matches!(relay_task.await.unwrap().end, Err(TunnelError::End { .. })));
}

#[tokio::test]
async fn a_relay_whose_task_is_dropped_resets_both_sides() {
    let ((mut client_peer, client_end), (remote_end, mut remote_peer)) =
        (pair().await, pair().await);
    let relay_task = tokio::spawn(relay(Socket::new(client_end), Socket::new(remote_end), None));
    client_peer.write_all(b"a").await.unwrap();
    assert_eq!(remote_peer.read_u8().await.unwrap(), b'a');
    relay_task.abort();
    assert_eq!(client_peer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(remote_peer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
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
    let open_report = report_when(|one| one.bytes_from_client == 3).await;
    assert_eq!(
        (open_report.open, open_report.opened, open_report.migrated, open_report.bytes_to_client),
        (1, 1, 0, 0)
    );
    assert!(open_report.ended.iter().all(|(_, count)| *count == 0), "{open_report:?}");

    // A tunnel that transferred many bytes migrates, which is reported while it is open.
    let sent_data = bytes(400_000);
    let mut received = vec![0; sent_data.len()];
    let (write_result, read_result) =
        tokio::join!(tcp.write_all(&sent_data), stream.read_exact(&mut received));
    write_result.unwrap();
    read_result.unwrap();
    let migrated_report = report_when(|one| one.migrated == 1).await;
    assert_eq!((migrated_report.open, migrated_report.bytes_to_client), (1, 400_000));

    drop(tcp);
    drop(stream);
    let end_report = report_when(|one| one.open == 0).await;
    let failed_tunnels: u64 =
        end_report.ended.iter().filter(|(reason, _)| *reason != "completed").map(|(_, n)| n).sum();
    assert_eq!(
        (end_report.opened, end_report.migrated, failed_tunnels),
        (1, 1, 1),
        "{end_report:?}"
    );
    assert_eq!(end_report.durations.iter().map(|(_, count)| count).sum::<u64>(), 1);

    let mut stream = gateway.tunnel(origin(echo).await).await;
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let end_report = report_when(|one| one.open == 0 && one.opened == 2).await;
    assert!(end_report.ended.contains(&("completed", 1)), "{end_report:?}");
}
