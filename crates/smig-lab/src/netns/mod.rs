//! Two hosts on one machine, joined by an emulated link, with real TCP between them.
//!
//! Network namespaces belong to threads, so one process holds both hosts: a
//! thread that enters a host's namespace opens its sockets there. Each host has
//! a TUN device; a third thread carries packets between the two devices through
//! the [`link`](crate::link) model. Nothing outlives the process: the kernel
//! takes the namespaces and devices away with the last descriptor.
//!
//! ```no_run
//! use smig_lab::link::LinkSpec;
//! use smig_lab::netns::{Testbed, enter_user_namespace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! enter_user_namespace()?; // first in main, before any thread
//! let testbed = Testbed::start(LinkSpec::paper_wired())?;
//! let server = testbed.server().run(|| std::net::TcpListener::bind("0.0.0.0:80"))?;
//! let listener = server.join().expect("no panic")?;
//! let address = testbed.server().address();
//! let client = testbed.client().run(move || std::net::TcpStream::connect((address, 80)))?;
//! let stream = client.join().expect("no panic")?;
//! # drop((listener, stream)); Ok(()) }
//! ```

mod error;
mod forward;
mod host;
mod netlink;
mod privilege;
mod sys;
mod testbed;

pub use error::{LabError, Missing};
pub use host::{Host, HostSpec, Running};
pub use privilege::{Privilege, enter_user_namespace};
pub use testbed::{BoxedLog, Builder, Testbed};
