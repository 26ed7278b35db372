//! File service with an access log.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use smig::Incoming;
use smig_admin::access_log::{AccessLog, LoggedBody, log_response};
use smig_files::{FileBody, Files};
use tower_service::Service;

/// File service that logs each response.
#[derive(Clone, Debug)]
pub(super) struct LoggedFiles {
    files: Files,
    log: Arc<AccessLog>,
}

impl LoggedFiles {
    pub(super) const fn new(files: Files, log: Arc<AccessLog>) -> Self {
        Self { files, log }
    }
}

impl Service<Request<Incoming>> for LoggedFiles {
    type Response = Response<LoggedBody<FileBody>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.files, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let entry = self.log.start_entry(&request);
        let response = self.files.call(request);
        Box::pin(async move { Ok(log_response(response.await?, entry)) })
    }
}
