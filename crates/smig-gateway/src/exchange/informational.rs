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

/// How the informational responses to one request are forwarded, and what they have cost.
#[derive(Debug)]
pub(super) struct InformationalForwarding {
    /// Total cost so far.
    total_cost_bytes: AtomicUsize,
    role: ProxyRole,
    version: Version,
}

impl InformationalForwarding {
    pub(super) const fn new(role: ProxyRole, version: Version) -> Self {
        Self { total_cost_bytes: AtomicUsize::new(0), role, version }
    }

    /// Counts an informational response; returns whether it may be forwarded.
    fn try_reserve(&self, headers: &HeaderMap) -> bool {
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
        let cost_bytes = BASE_COST_BYTES + fields.sum::<usize>();
        self.total_cost_bytes.fetch_add(cost_bytes, Ordering::Relaxed).saturating_add(cost_bytes)
            <= MAX_INFORMATIONAL_BYTES
    }
}

/// Handles an informational response (1xx) of an upstream. 100 opens the gate of the upload and is
/// not forwarded: the gateway's server sends 100 itself when the body is read.
pub(super) fn handle_informational(
    informational: &InformationalSender,
    upload: &Upload,
    forwarding: &InformationalForwarding,
    status: StatusCode,
    headers: &HeaderMap,
) {
    if status == StatusCode::CONTINUE {
        upload.open_gate();
        return;
    }
    if !forwarding.try_reserve(headers) {
        tracing::debug!(%status, "limit reached: informational responses to one request");
        return;
    }
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers.clone();
    if head::validate_response(&mut head).is_ok() {
        forwarding.role.add_via(head.headers_mut(), forwarding.version);
        informational.send(status, std::mem::take(head.headers_mut()));
    }
}
