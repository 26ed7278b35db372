//! Requests that are still being sent after their complete responses (RFC 9113 section 8.1).

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use smig::{BoxError, Client, Error, ErrorCode, Incoming, Reset, Server};
use tokio::sync::mpsc;
use tower::service_fn;

use crate::support::{full, pair, url};

/// Long enough for any machine.
const RESULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Ends the body cleanly on drop.
type BodySender = mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>;
type ResultReceiver = mpsc::UnboundedReceiver<Result<Bytes, Error>>;

/// A server that responds at once, continues to read, and reports what it has read.
fn early_responder() -> (Server, Client, ResultReceiver) {
    let (server, client) = pair();
    let (results, result_receiver) = mpsc::unbounded_channel();
    let answer = move |request: Request<Incoming>| {
        let results = results.clone();
        tokio::task::spawn_local(async move {
            let body = request.into_body().collect().await;
            let _ = results.send(body.map(|body| body.to_bytes()));
        });
        std::future::ready(Ok::<_, BoxError>(Response::new(full("early"))))
    };
    let server = server.start(service_fn(answer)).unwrap();
    (server, client.spares(0).build().unwrap(), result_receiver)
}

/// Starts a request; returns its body's sender and its response.
async fn begin_upload(server: &Server, client: &Client) -> (BodySender, Response<Incoming>) {
    let (sender, frames) = mpsc::unbounded_channel();
    let frames = futures_util::stream::unfold(frames, async |mut frames| {
        let frame = frames.recv().await?;
        Some((frame, frames))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    let request = Request::post(url(server, "/")).body(body).unwrap();
    sender.send(Ok(Frame::data("begin".into()))).unwrap();
    (sender, client.request(request).await.unwrap())
}

async fn next_result(result_receiver: &mut ResultReceiver) -> Result<Bytes, Error> {
    tokio::time::timeout(RESULT_TIMEOUT, result_receiver.recv())
        .await
        .expect("the request ends")
        .unwrap()
}

#[tokio::test]
async fn the_rest_of_a_request_is_abandoned_on_request() {
    for after_response in [false, true] {
        let (server, client, mut result_receiver) = early_responder();
        let (sender, response) = begin_upload(&server, &client).await;
        let info = response.body().stream_info().unwrap();
        if after_response {
            // It can be called at any time, on a handle that outlives the response.
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "early");
            info.stop_upload_after_response();
        } else {
            info.stop_upload_after_response();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "early");
        }
        assert_eq!(
            next_result(&mut result_receiver).await.unwrap_err().code(),
            Some(ErrorCode::Cancel)
        );
        drop(sender);
    }
}

#[tokio::test]
async fn a_request_continues_after_its_response_was_dropped() {
    let (server, client, mut result_receiver) = early_responder();
    let (sender, response) = begin_upload(&server, &client).await;
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "early");
    // Longer than the grace period of abandoned requests.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    sender.send(Ok(Frame::data(" end".into()))).unwrap();
    drop(sender);
    assert_eq!(next_result(&mut result_receiver).await.unwrap(), "begin end");
}

#[tokio::test]
async fn a_body_that_fails_after_its_response_resets_the_stream_with_its_code() {
    let (server, client, mut result_receiver) = early_responder();
    let (sender, response) = begin_upload(&server, &client).await;
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "early");
    sender.send(Err(Reset(ErrorCode::InternalError).into())).unwrap();
    assert_eq!(
        next_result(&mut result_receiver).await.unwrap_err().code(),
        Some(ErrorCode::InternalError)
    );
}
