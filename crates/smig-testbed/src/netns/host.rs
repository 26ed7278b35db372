//! A host: a network namespace with a TUN device for each link.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::child::Child;
use super::device::{self, DeviceState, LinkEndpoint};
use super::error::{MissingRequirement, SetupContext, TestbedError};
use super::host_spec::HostSpec;
use super::net_dev::device_counts;
use super::sys;

/// A host of the testbed. Clones refer to the same host.
#[derive(Debug, Clone)]
pub struct Host {
    name: &'static str,
    endpoints: Arc<[LinkEndpoint]>,
    spec: Arc<HostSpec>,
    namespace: Arc<OwnedFd>,
}

impl Host {
    /// Creates a namespace with a device for each endpoint, on a temporary thread,
    /// so that the calling thread stays in its namespace.
    pub(super) fn create(
        name: &'static str,
        endpoints: Vec<LinkEndpoint>,
        spec: HostSpec,
    ) -> Result<(Self, Vec<OwnedFd>), TestbedError> {
        thread::Builder::new()
            .name(format!("create-{name}"))
            .spawn(move || {
                let namespace = Arc::new(new_namespace()?);
                let tuns = device::set_up(&endpoints, &spec)?;
                let (endpoints, spec) = (endpoints.into(), Arc::new(spec));
                Ok((Self { name, endpoints, spec, namespace }, tuns))
            })
            .context(|| "cannot start a thread".into())?
            .join()
            .expect("setting up a host does not panic")
    }

    /// Creates a host without links, for comparison with the kernel's own emulation.
    pub(crate) fn without_links(name: &'static str) -> Result<Self, TestbedError> {
        Self::create(name, Vec::new(), HostSpec::default()).map(|(host, _)| host)
    }

    /// Returns the host's address on the first link.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address_on(0)
    }

    /// Returns the host's address on a link, counted from 0; unspecified
    /// (0.0.0.0) if there is no such link.
    #[must_use]
    pub fn address_on(&self, link: usize) -> Ipv4Addr {
        self.endpoints.get(link).map_or(Ipv4Addr::UNSPECIFIED, |end| end.address)
    }

    /// Returns the host's addresses, one on each link.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.endpoints.iter().map(|end| end.address)
    }

    /// Returns the name of the host's device on a link, counted from 0.
    #[must_use]
    pub fn device_name_on(&self, link: usize) -> Option<String> {
        self.endpoints.get(link).map(|end| end.device_name())
    }

    /// Returns the host's network namespace.
    #[must_use]
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Runs `work` on a new thread inside the host. Sockets that it opens,
    /// threads that it starts and programs that it runs are inside as well. An
    /// async runtime must be created inside the closure.
    ///
    /// # Errors
    /// When the thread cannot be started or cannot enter the host.
    pub fn run<T, F>(&self, work: F) -> io::Result<HostThread<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let namespace = Arc::clone(&self.namespace);
        let (entry_tx, entry_rx) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(self.name.to_owned()).spawn(move || {
            let result =
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
            let inside = result.is_ok();
            // The receiver waits for this message.
            let _ = entry_tx.send(result);
            inside.then(work)
        })?;
        entry_rx.recv().map_err(|_| io::Error::other("the host's thread ended early"))??;
        Ok(HostThread(thread))
    }

    /// Starts a program inside the host. It and its descendants are killed when
    /// the [`Child`] is dropped, and when this process ends, however it ends.
    ///
    /// # Errors
    /// When the host cannot be entered or the program cannot be started.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        Child::spawn(Some(self), command)
    }

    /// Returns whether a socket inside the host can use this congestion control;
    /// the kernel may load its module.
    ///
    /// # Errors
    /// When the host cannot be entered.
    pub fn has_congestion_control(&self, name: &str) -> io::Result<bool> {
        let name = name.to_owned();
        let check = move || device::can_use_congestion_control(&name);
        Ok(self.run(check)?.join().expect("opening a socket does not panic"))
    }

    /// Takes the host's device on a link, counted from 0, down or up again: its users are told, and its routes go and come with it.
    ///
    /// # Errors
    /// When there is no such link, or the device cannot be changed.
    pub fn set_device_state(&self, link: usize, state: DeviceState) -> Result<(), TestbedError> {
        let endpoint =
            self.endpoint(link).context(|| "cannot change the state of a device".into())?;
        let spec = Arc::clone(&self.spec);
        self.run(move || device::set_state(endpoint, &spec, state))
            .context(|| "cannot enter the host".into())?
            .join()
            .expect("changing a device does not panic")
    }

    /// Returns the number of packets that the host's devices dropped, in either
    /// direction, outside the links. A run with any is not a valid measurement.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn device_drops(&self) -> io::Result<u64> {
        self.drops_of(&self.endpoints)
    }

    /// Returns the number of packets that the host's device on a link, counted from 0, dropped in either direction.
    ///
    /// # Errors
    /// When there is no such link, or the kernel's counters cannot be read.
    pub fn device_drops_on(&self, link: usize) -> io::Result<u64> {
        self.drops_of(&[self.endpoint(link)?])
    }

    fn drops_of(&self, endpoints: &[LinkEndpoint]) -> io::Result<u64> {
        let counts = self.run(device_counts)?.join().expect("reading a file does not panic")?;
        let drops = |endpoint: &LinkEndpoint| {
            let name = endpoint.device_name();
            let device = counts.iter().find(|device| device.name == name);
            device
                .map(|device| device.drops)
                .ok_or_else(|| io::Error::other(format!("the host has lost its device {name}")))
        };
        endpoints.iter().map(drops).sum()
    }

    fn endpoint(&self, link: usize) -> io::Result<LinkEndpoint> {
        let endpoint = self.endpoints.get(link).copied();
        endpoint.ok_or_else(|| io::Error::other(format!("there is no link {link}")))
    }
}

/// Moves the calling thread into a new network namespace and returns it.
fn new_namespace() -> Result<OwnedFd, TestbedError> {
    sys::unshare(UnshareFlags::NEWNET)
        .map_err(|errno| TestbedError::missing(MissingRequirement::NetworkNamespace, errno))?;
    let path = "/proc/thread-self/ns/net";
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("cannot open {path}"))
}

/// A thread that runs in a host, or in the network namespace of the thread that started it.
#[derive(Debug)]
pub struct HostThread<T>(JoinHandle<Option<T>>);

impl<T: Send + 'static> HostThread<T> {
    /// Runs `work` on a new thread in the network namespace of the calling thread.
    pub(super) fn spawn_in_current_namespace(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self> {
        thread::Builder::new().spawn(|| Some(work())).map(Self)
    }
}

impl<T> HostThread<T> {
    /// Waits for the work to end.
    ///
    /// # Errors
    /// The work's panic, as from [`JoinHandle::join`].
    pub fn join(self) -> thread::Result<T> {
        self.0.join().map(|value| value.expect("run() checks that the thread enters the host"))
    }

    /// Returns whether the work has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}
