//! What a server requires of the application's service and of its response bodies: the bounds of the server's generic
//! code, in one place. The public API writes them out.

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::error::BoxError;
use crate::stream::Incoming;

/// A tower service that answers requests with bodies of the type `B`. It is cloned for each session and polled on one
/// thread.
pub(super) trait HttpService<B>:
    Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>, Future: 'static>
    + Clone
    + 'static
{
}

impl<S, B> HttpService<B> for S
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
{
}

/// A response's body.
pub(super) trait ResponseBody: Body<Error: Into<BoxError>> + 'static {}

impl<B> ResponseBody for B
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
}
