//! `smig lab run` and `smig lab merge` as programs: resuming, sharing, refusing, and every server that is
//! installed.
//!
//! Where the machine allows no network namespaces, what needs them is left out and says so.

mod campaign;
mod refusals;
mod servers;
mod support;
