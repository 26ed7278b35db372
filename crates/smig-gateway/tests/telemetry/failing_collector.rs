//! A collector that is unreachable or stalls does not affect requests.

use smig_testkit::port::ReservedPort;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{LONG, gateway, get, origin, telemetry};

#[tokio::test]
async fn an_unreachable_collector_loses_only_spans() {
    let origin = origin();
    let closed_port = ReservedPort::new();
    let telemetry_config = telemetry(&format!("http://{closed_port}"), "");
    let (gateway, address) = gateway(&origin, &telemetry_config);
    assert_eq!(get(address, "/bytes/7", "").await.len(), 7);
    gateway.drain(LONG).await.unwrap();
}

#[tokio::test]
async fn a_stalled_collector_delays_neither_requests_nor_the_drain() {
    let origin = origin();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let telemetry_config = telemetry(&format!("http://{}", listener.local_addr().unwrap()), "");
    let (gateway, address) = gateway(&origin, &telemetry_config);
    let (sender, mut stalled_connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut first = [0; 4];
                // Connections without a request are irrelevant.
                if tcp.read_exact(&mut first).await.is_ok() {
                    sender.send((first, tcp)).unwrap();
                }
            });
        }
    });
    assert_eq!(get(address, "/bytes/7", "").await.len(), 7);
    // Draining completes although the last batch is not accepted.
    gateway.drain(LONG).await.unwrap();
    let (first, _stalled) = stalled_connections.recv().await.unwrap();
    assert_eq!(&first, b"POST");
}
