//! The beginning of a tunnel by CONNECT, at either side.

use http::{Request, Response, response};
use smig::{Client, Incoming, Origin};

use super::feed::{FedBody, feed};
use super::stream::Stream;

/// What a proxy made of a CONNECT request.
#[derive(Debug)]
pub enum Opened {
    /// It answered 2xx: the tunnel is there.
    Tunnel(response::Parts, Stream),
    /// Any other answer, with its body.
    Refused(Response<Incoming>),
}

/// Sends a CONNECT request, usual or extended, to a proxy and waits for its answer. The request's
/// body is the tunnel's outgoing direction. Dropping the future cancels the stream.
///
/// # Errors
/// See the questions on [`smig::Error`]. Nothing was written to the tunnel then, so that an error
/// which [is retryable](smig::Error::is_retryable) leaves the caller free to try again.
pub async fn open(
    client: &Client,
    proxy: &Origin,
    request: Request<()>,
) -> Result<Opened, smig::Error> {
    let (mut feed, body) = feed();
    let response = client.request_to(proxy, request.map(|()| body)).await?;
    if !response.status().is_success() {
        // Broken off, the request would take the response with it.
        feed.finish();
        return Ok(Opened::Refused(response));
    }
    let (parts, incoming) = response.into_parts();
    Ok(Opened::Tunnel(parts, Stream::new(incoming, feed)))
}

/// The server's side of a tunnel: the end to relay, and the body of the 2xx response, which is the
/// tunnel's outgoing direction.
#[must_use]
pub fn accept(request: Incoming) -> (Stream, FedBody) {
    let (feed, body) = feed();
    (Stream::new(request, feed), body)
}
