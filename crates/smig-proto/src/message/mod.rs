//! Messages (RFC 9113 section 8): converts field sections to heads and back, with strict
//! validation.
//!
//! Never repairs a malformed message: ambiguity that a proxy would have to resolve is a stream
//! error.

mod encode;
mod section;
mod validate;

pub(crate) use encode::{encode_request, encode_section, encode_trailers};
pub(crate) use section::{FieldPresence, FieldSection, SectionLimits};
pub use validate::is_host_and_port;
pub(crate) use validate::{ResponseKind, content_length};
