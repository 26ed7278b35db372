//! The server's side of a run.

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::sync::mpsc;

use smig::{Config, Server, ServerTls, SocketOptions};
use smig_files::{Files, Options};
use smig_testbed::netns::{Host, HostThread};

use super::material::DemoFiles;
use super::{DemoOptions, DriveError};
use crate::demo::data::Variant;

pub(super) const PORT: u16 = 443;
/// The server's address in every testbed.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// TCP_NOTSENT_LOWAT of the tuned variant, in bytes.
const LOW_WATER: u32 = 16 << 10;

/// A server running in its host.
pub(super) struct ServerThread {
    stop: mpsc::Sender<()>,
    thread: HostThread<Result<(), DriveError>>,
}

impl ServerThread {
    pub(super) fn stop(self) -> Result<(), DriveError> {
        drop(self.stop);
        self.thread.join().map_err(|_| DriveError::Panicked("server"))?
    }
}

/// Starts a server of the variant in its host and waits until it listens.
pub(super) fn serve(
    host: &Host,
    variant: Variant,
    options: &DemoOptions,
    material: &DemoFiles,
) -> Result<ServerThread, DriveError> {
    let tls = ServerTls::from_pem(material.certificate.as_bytes(), material.key.as_bytes())?;
    let files = Files::new(material.folder.path(), Options::default())?;
    let max_hold = options.max_hold;
    let (bulk, address) = (bulk_socket(options), (host.address(), PORT).into());
    let (ready, wait) = mpsc::channel();
    let (stop, stopped) = mpsc::channel();
    let thread = host.run(move || {
        let mut config = Config::server();
        let mut interactive = SocketOptions::interactive();
        match variant {
            Variant::PlainHttp2 => {
                config.smig = None;
                interactive.notsent_lowat = None;
            }
            Variant::NotsentLowat => {
                config.smig = None;
                interactive.notsent_lowat = Some(LOW_WATER);
            }
            Variant::Smig => {}
        }
        let server = Server::builder()
            .listen(address, tls)
            .workers(NonZeroUsize::MIN)
            .engine(config)
            .interactive_socket(interactive)
            .bulk_socket(bulk)
            .max_hold(max_hold)
            .start(files)?;
        let _ = ready.send(());
        // Returns when the sender is dropped.
        let _ = stopped.recv();
        drop(server);
        Ok(())
    })?;
    if wait.recv().is_err() {
        return Err(thread
            .join()
            .map_err(|_| DriveError::Panicked("server"))?
            .err()
            .unwrap_or(DriveError::Panicked("server")));
    }
    Ok(ServerThread { stop, thread })
}

fn bulk_socket(options: &DemoOptions) -> SocketOptions {
    let mut bulk = SocketOptions::bulk();
    bulk.congestion_control.clone_from(&options.bulk_congestion_control);
    bulk
}
