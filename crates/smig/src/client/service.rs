//! The client as a tower service, for example for gRPC clients.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Client, Origin};
use crate::error::{BoxError, Error};
use crate::stream::Incoming;

/// Each call is a [`Client::request`] to the origin of the request's URI, which must be absolute. The service is
/// ready when the [queue](crate::ClientBuilder::queue) has an available permit, which it reserves for the next
/// call. A call without a reservation fails when the queue is full.
///
/// A tonic client can use it, and its large responses migrate. It must be given its origin:
/// `GreeterClient::with_origin(client, "https://localhost:8443".parse()?)`.
impl<B> Service<Request<B>> for Client
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.queue_reservation.poll(&self.inner.queue_limit, cx).map(Ok)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (client, queue_permit) = (self.clone(), self.queue_reservation.take());
        Box::pin(async move {
            let origin = Origin::from_uri(request.uri())?;
            client.submit_with_permit(&origin, request, queue_permit)?.await
        })
    }
}
