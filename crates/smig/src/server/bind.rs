//! The sockets that a server listens at: bound once per worker, or shared by all workers if the application has bound
//! them.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use smig_proto::Security;
use socket2::{Domain, Protocol, Socket, Type};

use super::listeners::{ListenerInfo, OpenListeners};
use super::tls::ServerTls;
use crate::connection::{CleartextTrust, ListenerId};
use crate::error::Error;

/// Backlog of each listening socket that this module creates.
pub(super) const BACKLOG: i32 = 1024;

/// Whether an address is served with TLS.
#[derive(Clone, Debug)]
pub(super) enum ListenSecurity {
    Tls(ServerTls),
    Cleartext(CleartextTrust),
}

/// Where to listen.
#[derive(Debug)]
pub(super) enum ListenTarget {
    /// At an address that the server binds.
    Bind(SocketAddr),
    /// At a socket that the application has bound.
    Bound(TcpListener),
}

/// A listener that is configured and not open yet.
#[derive(Debug)]
pub(super) struct ListenerConfig {
    pub(super) id: ListenerId,
    pub(super) target: ListenTarget,
    pub(super) security: ListenSecurity,
}

/// A listening socket of one worker.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) spec: Arc<ListenerSpec>,
}

/// What a connection inherits from the listener that accepted it.
#[derive(Debug)]
pub(super) struct ListenerSpec {
    pub(super) id: ListenerId,
    pub(super) addr: SocketAddr,
    pub(super) kind: ListenerKind,
}

#[derive(Debug)]
pub(super) enum ListenerKind {
    Tls(ServerTls),
    /// Cleartext, and its security.
    Cleartext(Security),
}

impl From<ListenSecurity> for ListenerKind {
    fn from(security: ListenSecurity) -> Self {
        match security {
            ListenSecurity::Tls(tls) => Self::Tls(tls),
            ListenSecurity::Cleartext(trust) => Self::Cleartext(trust.security()),
        }
    }
}

/// Opens all listeners. Returns them, and the sockets of each of `workers` workers.
pub(super) fn bind_all(
    configs: Vec<ListenerConfig>,
    workers: usize,
) -> Result<(OpenListeners, Vec<Vec<Listener>>), Error> {
    let mut open_listeners = OpenListeners::default();
    let mut worker_listeners: Vec<Vec<Listener>> = Vec::new();
    worker_listeners.resize_with(workers, Vec::new);
    for config in configs {
        let (info, listeners) = bind(config, workers)?;
        for (own_listeners, listener) in worker_listeners.iter_mut().zip(listeners) {
            own_listeners.push(listener);
        }
        open_listeners.add(info);
    }
    Ok((open_listeners, worker_listeners))
}

/// Opens a listener, with one socket for each of `workers` workers.
pub(super) fn bind(
    ListenerConfig { id, target, security }: ListenerConfig,
    workers: usize,
) -> Result<(ListenerInfo, Vec<Listener>), Error> {
    let (addr, sockets) = match target {
        ListenTarget::Bind(addr) => bind_addr(addr, workers).map_err(|error| {
            Error::config(format!("cannot listen on {addr}: {error}; is it in use already?"))
        }),
        ListenTarget::Bound(socket) => clone_sockets(&socket, workers).map_err(|error| {
            Error::config(format!("cannot use the bound listener: {error}; is it a TCP socket?"))
        }),
    }?;
    let spec = Arc::new(ListenerSpec { id, addr, kind: security.into() });
    let listener = |socket| Listener { socket, spec: Arc::clone(&spec) };
    Ok((ListenerInfo { id, addr }, sockets.into_iter().map(listener).collect()))
}

/// Binds an address once per worker, so that the kernel distributes connections among them.
fn bind_addr(addr: SocketAddr, workers: usize) -> std::io::Result<(SocketAddr, Vec<TcpListener>)> {
    let mut bound_addr = addr;
    let mut sockets = Vec::new();
    for _ in 0..workers {
        let socket = listen(bound_addr)?;
        // For port 0 the system chooses a port once.
        bound_addr = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok((bound_addr, sockets))
}

/// Creates a listening socket that shares its address with those of the other workers.
fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Duplicates a bound socket for each worker: they accept from one queue.
fn clone_sockets(
    socket: &TcpListener,
    workers: usize,
) -> std::io::Result<(SocketAddr, Vec<TcpListener>)> {
    socket.set_nonblocking(true)?;
    let sockets = (0..workers).map(|_| socket.try_clone()).collect::<Result<_, _>>()?;
    Ok((socket.local_addr()?, sockets))
}
