//! The service as a server calls it, over real folders.

mod basics;
mod site;
