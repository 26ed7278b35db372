//! The server's first SETTINGS frame arrives in pieces. Until it is complete, a client does not know whether the server
//! supports extended CONNECT (RFC 8441 section 3).

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use smig::{ClearTrust, Cleartext, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::retries::Peer;
use crate::support::loopback;

/// SETTINGS_ENABLE_CONNECT_PROTOCOL = 1.
const SETTINGS: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1];

#[tokio::test]
async fn extended_connect_waits_for_complete_settings() {
    for first in 1..SETTINGS.len() {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let cleartext = Cleartext::PriorKnowledge(ClearTrust::None);
        let client = Client::builder().cleartext(cleartext).build().unwrap();
        let url = format!("http://{}/chat", listener.local_addr().unwrap());
        let mut request = Request::connect(url).body(Full::<Bytes>::default()).unwrap();
        request.extensions_mut().insert(smig::Protocol::new("websocket").unwrap());
        let serving = async {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tcp.set_nodelay(true).unwrap();
            tcp.read_exact(&mut [0; 24]).await.unwrap();
            let (one, two) = SETTINGS.split_at(first);
            tcp.write_all(one).await.unwrap();
            // The client runs on this thread: it reads the first piece alone.
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            tcp.write_all(two).await.unwrap();
            let mut peer = Peer(tcp);
            peer.answer().await;
            peer
        };
        let (response, _peer) = tokio::join!(client.request(request), serving);
        assert_eq!(response.unwrap().status(), 200, "first piece: {first} bytes");
    }
}
