//! Which HTTP/1.1 connections of a client carry one request after another.

use std::net::SocketAddr;

use http::{Request, Version};
use http_body_util::BodyExt as _;
use smig::{Cleartext, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{full, loopback};

/// Says with each answer which one of its connection it is.
async fn count(mut tcp: TcpStream, head: &str) -> std::io::Result<()> {
    let mut came = Vec::new();
    for n in 1_u32.. {
        while !came.ends_with(b"\r\n\r\n") {
            if tcp.read_buf(&mut came).await? == 0 {
                return Ok(());
            }
        }
        came.clear();
        tcp.write_all(format!("{head}\r\n{n:4}").as_bytes()).await?;
    }
    Ok(())
}

async fn counting(head: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            // Whoever wants no more of it may reset it.
            tokio::spawn(async move { drop(count(tcp, head).await) });
        }
    });
    addr
}

/// The greatest number that a connection came to.
async fn most(head: &'static str, fields: &[(&str, &str)]) -> u32 {
    let addr = counting(head).await;
    let client = Client::builder().cleartext(Cleartext::Http1).build().unwrap();
    let mut most = 0;
    // More than there are connections at once.
    for _ in 0..20 {
        let mut request = Request::get(format!("http://{addr}/"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let response = client.request(request.body(full("")).unwrap()).await.unwrap();
        assert!(response.version() <= Version::HTTP_11);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        most = most.max(std::str::from_utf8(&body).unwrap().trim().parse().unwrap());
    }
    most
}

#[tokio::test]
async fn a_connection_that_leaves_doubt_carries_no_other_request() {
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n";
    assert!(most(OK, &[]).await > 1, "usual ones are shared");
    for credentials in ["NTLM TlRM", "negotiate YII="] {
        assert_eq!(most(OK, &[("authorization", credentials)]).await, 1, "{credentials}");
    }
    for head in [
        "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\", NTLM\r\nContent-Length: 4\r\n",
        "HTTP/1.1 200 OK\r\nWWW-Authenticate: Negotiate YII=\r\nContent-Length: 4\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n",
    ] {
        assert_eq!(most(head, &[]).await, 1, "{head}");
    }
}
