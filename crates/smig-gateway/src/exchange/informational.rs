//! Informational responses (1xx) of an upstream, on their way to the client.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Response, StatusCode, Version};
use smig::InformationalSender;
use smig_proxy::head;
use smig_proxy::upload::Upload;

use super::request::ProxyRole;

/// Maximum size of the forwarded informational responses to one request; an early hint takes a few
/// hundred bytes. If a client does not read, all of them are buffered.
const MAX_INFORMATIONAL_BYTES: usize = 16 << 10;
/// Cost of an informational response without fields.
const BASE_COST_BYTES: usize = 128;

/// The informational responses to one request.
#[derive(Debug)]
pub(super) struct InformationalResponses {
    /// Total cost so far.
    cost: AtomicUsize,
    role: ProxyRole,
    version: Version,
}

impl InformationalResponses {
    pub(super) const fn new(role: ProxyRole, version: Version) -> Self {
        Self { cost: AtomicUsize::new(0), role, version }
    }

    /// Counts an informational response; returns whether it may be forwarded.
    fn try_reserve(&self, headers: &HeaderMap) -> bool {
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
        let cost = BASE_COST_BYTES + fields.sum::<usize>();
        self.cost.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) <= MAX_INFORMATIONAL_BYTES
    }
}

/// Handles an informational response (1xx) of an upstream. 100 opens the gate of the upload and is
/// not forwarded: the gateway's server sends 100 itself when the body is read.
pub(super) fn handle_informational(
    informational: &InformationalSender,
    upload: &Upload,
    forwarded: &InformationalResponses,
    status: StatusCode,
    headers: &HeaderMap,
) {
    if status == StatusCode::CONTINUE {
        upload.open_gate();
        return;
    }
    if !forwarded.try_reserve(headers) {
        tracing::debug!(%status, "limit reached: informational responses to one request");
        return;
    }
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers.clone();
    if head::validate_response(&mut head).is_ok() {
        forwarded.role.add_via(head.headers_mut(), forwarded.version);
        informational.send(status, std::mem::take(head.headers_mut()));
    }
}
