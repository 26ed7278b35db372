//! `smig lab run`, `smig lab merge` and `smig lab link` as programs: resuming, sharing, refusing, and every
//! server that is installed.
//!
//! Where the machine allows no network namespaces, what needs them is left out and says so.

mod campaign;
mod link;
mod refusals;
mod servers;
mod support;
