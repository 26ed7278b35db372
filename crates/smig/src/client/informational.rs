//! Callback for informational responses (1xx).

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Request, StatusCode};

type Callback = dyn Fn(StatusCode, &HeaderMap) + Send + Sync;

/// The callback for a request's informational responses.
#[derive(Clone)]
pub(crate) struct OnInformational(Arc<Callback>);

impl fmt::Debug for OnInformational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInformational")
    }
}

impl OnInformational {
    pub(crate) fn call(&self, status: StatusCode, headers: &HeaderMap) {
        (self.0)(status, headers);
    }
}

/// Registers `callback`, which is called on the session's task for each informational response (1xx) to this
/// request. Over HTTP/1.1 none is reported.
pub fn on_informational<B>(
    request: &mut Request<B>,
    callback: impl Fn(StatusCode, &HeaderMap) + Send + Sync + 'static,
) {
    request.extensions_mut().insert(OnInformational(Arc::new(callback)));
}
