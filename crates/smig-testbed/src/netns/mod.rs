//! Two hosts on one machine, joined by emulated links, with real TCP between them.
//!
//! Network namespaces are per thread, so one process contains both hosts: a
//! thread that enters a host's namespace opens its sockets there. Each host has
//! a TUN device for each link; one thread per link forwards packets between the
//! two devices through the [`link`](smig_link) model. Nothing outlives the
//! process, however it ends: the kernel removes the namespaces and devices with
//! the last descriptor, and kills the programs that were started inside.
//!
//! ```no_run
//! use smig_link::LinkSpec;
//! use smig_testbed::netns::{Testbed, enter_user_namespace};
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

mod child;
mod device;
mod error;
mod forward;
mod host;
mod host_spec;
mod mptcp;
mod net_dev;
mod netlink;
mod pcap;
mod privilege;
mod spool;
mod sys;
mod testbed;

pub use child::Child;
pub(crate) use device::available_congestion_controls;
pub use device::{DeviceState, MAX_FURTHER_ADDRESSES, check_congestion_control};
pub use error::{MissingRequirement, TestbedError};
pub use forward::now;
pub use host::{Host, HostThread};
pub use host_spec::HostSpec;
pub use mptcp::SubflowUse;
pub use net_dev::{DeviceCounts, device_counts};
pub use privilege::{Privilege, enter_user_namespace, raise_ambient_caps};
pub(crate) use sys::set_realtime_scheduling;
pub use testbed::{BoxedLog, CaptureSpec, LinkSetup, Testbed, TestbedBuilder};
pub(crate) use testbed::{Direction, seed_of};
