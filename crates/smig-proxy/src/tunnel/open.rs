//! Opening a tunnel by CONNECT, on either side.

use http::{Request, Response, response};
use smig::{Client, Incoming, Origin};

use super::channel::{ChannelBody, channel};
use super::stream::Stream;

/// A proxy's response to a CONNECT request.
#[derive(Debug)]
pub enum ConnectResponse {
    /// 2xx: the tunnel is open.
    Tunnel(response::Parts, Stream),
    /// Any other response, with its body.
    Refused(Response<Incoming>),
}

/// Sends a CONNECT request, plain or extended, to a proxy and waits for its response. The request's body is
/// the tunnel's outgoing direction. Dropping the future cancels the stream.
///
/// # Errors
/// See the methods of [`smig::Error`]. Nothing was written to the tunnel then: if the error
/// [is retryable](smig::Error::is_retryable), the caller may try again.
pub async fn open(
    client: &Client,
    proxy: &Origin,
    request: Request<()>,
) -> Result<ConnectResponse, smig::Error> {
    let (mut sender, body) = channel();
    let response = client.request_to(proxy, request.map(|()| body)).await?;
    if !response.status().is_success() {
        // Resetting the request's direction would discard the response.
        sender.finish();
        return Ok(ConnectResponse::Refused(response));
    }
    let (parts, incoming) = response.into_parts();
    Ok(ConnectResponse::Tunnel(parts, Stream::new(incoming, sender)))
}

/// Creates the server's side of a tunnel: the end to relay, and the body of the 2xx response, which is the
/// tunnel's outgoing direction.
#[must_use]
pub fn accept(request_body: Incoming) -> (Stream, ChannelBody) {
    let (sender, body) = channel();
    (Stream::new(request_body, sender), body)
}
