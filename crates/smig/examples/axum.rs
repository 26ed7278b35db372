//! An axum application on a smig server, requested by a smig client in the same process.
//!
//! `cargo run -p smig --example axum`

use std::num::NonZeroUsize;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use smig::{BoxError, Client, Incoming, Server, ServerTls, Trust};
use tower::ServiceExt as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (certificate, key) = (generated.cert.pem(), generated.signing_key.serialize_pem());

    let app = Router::new()
        .route(
            "/hello/{name}",
            get(|Path(name): Path<String>| async move { format!("Hello, {name}!") }),
        )
        .route("/big", get(|| async { vec![b'x'; 5_000_000] }))
        .map_request(|request: Request<Incoming>| request.map(axum::body::Body::new));

    let server = Server::builder()
        .listen(
            "127.0.0.1:0".parse()?,
            ServerTls::from_pem(certificate.as_bytes(), key.as_bytes())?,
        )
        .workers(NonZeroUsize::MIN)
        .start(app)?;
    let origin = format!("https://localhost:{}", server.local_addrs()[0].port());

    let client = Client::builder().trust(Trust::Pem(certificate.into_bytes())).build()?;
    let fetch = async |path: &str| -> Result<Bytes, BoxError> {
        let request = Request::get(format!("{origin}{path}")).body(Empty::<Bytes>::new())?;
        let response = client.request(request).await?;
        println!("{path}: {} {:?}", response.status(), response.version());
        Ok(response.into_body().collect().await?.to_bytes())
    };
    let hello = fetch("/hello/world").await?;
    println!("{}", String::from_utf8_lossy(&hello));
    if hello != "Hello, world!" {
        return Err("the application's response is wrong".into());
    }
    let big = fetch("/big").await?;
    println!("{} bytes", big.len());
    if big.len() != 5_000_000 {
        return Err("the large response is not complete".into());
    }
    server.shutdown(std::time::Duration::from_secs(5)).await?;
    Ok(())
}
