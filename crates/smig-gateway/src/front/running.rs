//! A gateway that runs: it starts, takes another configuration without dropping a connection, and
//! drains.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig::{AuthorityCheck, ClearTrust, Server, ServerTls, Stats};
use smig_settings::Faults;
use tokio::sync::watch;

use super::Front;
use super::access_log::AccessLog;
use super::keeper::Keeper;
use super::table::{Kept, Table};
use crate::admin::{self, Admin, Subject, Watch};
use crate::config::{Config, ListenProtocol};
use crate::telemetry::{self, Telemetry, TelemetryError};
use crate::tls::{self, Stamps};
use crate::upstream::SILENT_FOR;

/// Why a gateway does not start, or does not take a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The configuration is wrong, and where.
    #[error(transparent)]
    Config(#[from] Faults),
    /// The server cannot run.
    #[error(transparent)]
    Server(#[from] smig::Error),
    /// The thread that looks after certificates and upstreams cannot run.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Spans cannot be sent to a collector.
    #[error("telemetry: {0}")]
    Telemetry(#[from] TelemetryError),
}

/// A running gateway. Dropping it stops it at once; [`Gateway::drain`] lets streams finish.
#[derive(Debug)]
pub struct Gateway {
    server: Server,
    front: Front,
    kept: Kept,
    doors: Vec<Door>,
    watched: Arc<Mutex<Watched>>,
    keeper: Keeper,
    admin: Option<Admin>,
    draining: Arc<AtomicBool>,
    telemetry: Option<Telemetry>,
}

/// An address of the configuration, and where it was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Door {
    configured: SocketAddr,
    protocol: ListenProtocol,
    bound: SocketAddr,
}

/// How often changed certificates' files were taken, and how often they could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewals {
    /// Those in use since.
    pub taken: u64,
    /// The certificates before stayed in use.
    pub failed: u64,
}

/// What the watcher looks at.
#[derive(Debug)]
struct Watched {
    config: Config,
    stamps: Stamps,
    /// None while there is no listener with TLS.
    tls: Option<ServerTls>,
    renewals: watch::Sender<Renewals>,
}

impl Gateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// Whatever of the configuration cannot be used, with its line and key; an address that is taken.
    pub fn start(config: Config) -> Result<Self, GatewayError> {
        // Before the files are read: a change after this is seen.
        let stamps = Stamps::of(&config);
        let kept = Kept::none().next(&config)?;
        let log = access_log(&config)?;
        let wanted = addresses(&config, &[])?;
        let tls = material(&config, &wanted)?;
        let table = Table::new(&config, &kept, Arc::clone(&log), redirects(&config, &[]))?;
        let telemetry = config.telemetry.as_ref();
        let telemetry = telemetry
            .map(|spec| Telemetry::start(spec, "smig-gateway"))
            .transpose()
            .map_err(|error| match error {
                TelemetryError::Trust(error) => {
                    config.fault(&["telemetry", "ca"], error.to_string()).into()
                }
                other => GatewayError::from(other),
            })?;
        let tracer = telemetry.as_ref().map(Telemetry::tracer);
        let watch = (config.admin.is_some() || tracer.is_some()).then(|| Watch::with(tracer));
        let front = Front::new(table, watch.clone());
        let mut server = config.server.clone();
        // A response that rests does not show that its client has gone.
        for options in [&mut server.interactive, &mut server.bulk] {
            options.silent_for.get_or_insert(SILENT_FOR);
        }
        let mut builder = server.builder().authority(AuthorityCheck::Service);
        for &(_, address, protocol) in &wanted {
            builder = match (trust(protocol), &tls) {
                (Some(trust), _) => builder.listen_cleartext(address, trust),
                (None, Some(tls)) => builder.listen(address, tls.clone()),
                (None, None) => builder,
            };
        }
        if let Some(watch) = &watch {
            builder = builder.observer(watch.clone());
        }
        if config.admin.is_some() {
            builder = builder.describe_streams(admin::NAME_LENGTH);
        }
        let server = builder.start(front.clone())?;
        let draining = Arc::new(AtomicBool::new(false));
        let admin = match (&config.admin, watch) {
            (Some(spec), Some(watch)) => {
                let ended = Arc::clone(&draining);
                let ready = move || match ended.load(Ordering::Relaxed) {
                    true => Err("draining".to_owned()),
                    false => Ok(()),
                };
                let mut subject = Subject::new("smig gateway", server.view(), watch)
                    .report(Arc::new(front.clone()))
                    .ready(ready);
                if let Some(telemetry) = &telemetry {
                    subject = subject.report(telemetry.tally());
                }
                let admin = admin::start(spec, subject)
                    .map_err(|error| config.fault(&["admin", "listen"], error.to_string()))?;
                Some(admin)
            }
            _ => None,
        };
        let door = |((_, configured, protocol), bound): (&(usize, _, _), &SocketAddr)| Door {
            configured: *configured,
            protocol: *protocol,
            bound: *bound,
        };
        let doors: Vec<Door> = wanted.iter().zip(server.local_addrs()).map(door).collect();
        front.swap(Table::new(&config, &kept, log, redirects(&config, &doors))?);
        let interval = config.tls.watch;
        let watched = Arc::new(Mutex::new(Watched {
            config,
            stamps,
            tls,
            renewals: watch::Sender::default(),
        }));
        let looked_at = Arc::clone(&watched);
        let look = move || look(&mut lock(&looked_at));
        let keeper = Keeper::start(interval, look).map_err(GatewayError::Thread)?;
        for upstream in kept.upstreams() {
            keeper.check(upstream);
        }
        Ok(Self { server, front, kept, doors, watched, keeper, admin, draining, telemetry })
    }

    /// Takes another configuration. Connections and streams stay; upstreams that are described as
    /// before keep their connections and what is known of their health. Returns the shared settings
    /// that differ: these need a restart.
    ///
    /// # Errors
    /// Whatever cannot be used, with its line and key; then everything is as before.
    pub fn reload(&mut self, config: Config) -> Result<Vec<&'static str>, GatewayError> {
        let stamps = Stamps::of(&config);
        let kept = self.kept.next(&config)?;
        let log = access_log(&config)?;
        let wanted = addresses(&config, &self.doors)?;
        let tls = material(&config, &wanted)?;
        // All that can be wrong with a table is found before anything changes.
        Table::new(&config, &kept, Arc::clone(&log), Vec::new())?;

        // Until the end: the watcher must not put back what is replaced here.
        let watched = Arc::clone(&self.watched);
        let mut watched = lock(&watched);
        let before = match (&watched.tls, &tls) {
            (Some(running), Some(new)) => Some(running.replace(new)),
            _ => None,
        };
        let tls = watched.tls.clone().or(tls);
        let doors = match self.open(&wanted, tls.as_ref()) {
            Ok(doors) => doors,
            Err((number, error)) => {
                if let (Some(running), Some(before)) = (&watched.tls, &before) {
                    running.replace(before);
                }
                let at = number.to_string();
                return Err(config.fault(&["listen", &at, "address"], error.to_string()).into());
            }
        };
        for door in self.doors.iter().filter(|door| !doors.contains(door)) {
            self.server.close(door.bound);
        }
        self.front.swap(Table::new(&config, &kept, log, redirects(&config, &doors))?);
        self.doors = doors;
        for upstream in kept.upstreams().filter(|upstream| !self.kept.has(upstream)) {
            self.keeper.check(upstream);
        }
        self.kept = kept;
        let changed = config.changed_server_settings(&watched.config);
        let renewals = watched.renewals.clone();
        *watched = Watched { config, stamps, tls, renewals };
        Ok(changed)
    }

    /// The wanted addresses: those that are open already, and the others, which it opens; all or none.
    fn open(
        &mut self,
        wanted: &[(usize, SocketAddr, ListenProtocol)],
        tls: Option<&ServerTls>,
    ) -> Result<Vec<Door>, (usize, smig::Error)> {
        let (mut doors, mut opened) = (Vec::new(), Vec::new());
        for &(number, configured, protocol) in wanted {
            let same = |door: &&Door| door.configured == configured && door.protocol == protocol;
            if let Some(door) = self.doors.iter().find(same) {
                doors.push(*door);
                continue;
            }
            let bound = match (trust(protocol), tls) {
                (Some(trust), _) => self.server.listen_cleartext(configured, trust),
                (None, Some(tls)) => self.server.listen(configured, tls),
                (None, None) => continue,
            };
            match bound {
                Ok(bound) => {
                    opened.push(bound);
                    doors.push(Door { configured, protocol, bound });
                }
                Err(error) => {
                    for bound in opened {
                        self.server.close(bound);
                    }
                    return Err((number, error));
                }
            }
        }
        Ok(doors)
    }

    /// Where it listens, ports filled in, with what is spoken there.
    pub fn listeners(&self) -> impl Iterator<Item = (SocketAddr, ListenProtocol)> {
        self.doors.iter().map(|door| (door.bound, door.protocol))
    }

    /// Where the live page is.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::local_addr)
    }

    /// What became of certificates' files that changed, now and whenever one changes.
    #[must_use]
    pub fn renewals(&self) -> watch::Receiver<Renewals> {
        lock(&self.watched).renewals.subscribe()
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// Ends gracefully: nothing new is accepted, running streams finish; what still runs after
    /// `limit` is cut. The last spans are sent then, for three seconds at most.
    ///
    /// # Errors
    /// A worker that failed.
    pub async fn drain(self, limit: Duration) -> Result<(), GatewayError> {
        self.draining.store(true, Ordering::Relaxed);
        let ended = self.server.shutdown(limit).await;
        if let Some(watch) = self.front.watch() {
            watch.cut();
        }
        if let Some(telemetry) = self.telemetry {
            telemetry.end(telemetry::LAST).await;
        }
        Ok(ended?)
    }
}

/// What cleartext is trusted with; `None` for TLS.
const fn trust(protocol: ListenProtocol) -> Option<ClearTrust> {
    match protocol {
        ListenProtocol::Tls => None,
        ListenProtocol::Cleartext => Some(ClearTrust::None),
        ListenProtocol::TrustedCleartext => Some(ClearTrust::TrustedNetwork),
    }
}

/// Certificates, if a listener needs them.
fn material(
    config: &Config,
    wanted: &[(usize, SocketAddr, ListenProtocol)],
) -> Result<Option<ServerTls>, Faults> {
    let needed = wanted.iter().any(|(_, _, protocol)| *protocol == ListenProtocol::Tls);
    needed.then(|| tls::material(config)).transpose()
}

fn access_log(config: &Config) -> Result<Arc<AccessLog>, Faults> {
    let spec = &config.access_log;
    AccessLog::new(spec.format, spec.file.as_deref()).map_err(|error| {
        config.fault(&["access_log", "file"], format!("cannot be opened: {error}"))
    })
}

/// The ports of listeners that redirect, where they are bound.
fn redirects(config: &Config, doors: &[Door]) -> Vec<(u16, u16)> {
    let mut all = Vec::new();
    for listen in &config.listen {
        let Some(to) = listen.redirect_to_https else { continue };
        for address in &listen.address {
            let door = doors.iter().find(|door| door.configured == *address);
            all.push((door.map_or(*address, |door| door.bound).port(), to));
        }
    }
    all
}

/// Every address with the number of its listener, each free or ours.
fn addresses(
    config: &Config,
    doors: &[Door],
) -> Result<Vec<(usize, SocketAddr, ListenProtocol)>, Faults> {
    let mut all = Vec::new();
    for (number, listen) in config.listen.iter().enumerate() {
        for &address in &listen.address {
            let is_ours = doors.iter().any(|door| door.configured == address);
            if !is_ours && let Err(error) = try_bind(address) {
                // localhost on a machine without IPv6.
                if address.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST)
                    && listen.address.len() > 1
                    && error.kind() != io::ErrorKind::AddrInUse
                {
                    continue;
                }
                let what = format!("cannot listen on {address}: {error}");
                return Err(config.fault(&["listen", &number.to_string(), "address"], what));
            }
            all.push((number, address, listen.protocol));
        }
    }
    if all.is_empty() {
        return Err(config.fault(&["listen"], "the gateway listens nowhere; write [[listen]]"));
    }
    Ok(all)
}

/// Whether an address is free. Workers share theirs (SO_REUSEPORT), which would let a second gateway
/// take half of the first one's clients without a word.
fn try_bind(address: SocketAddr) -> io::Result<()> {
    std::net::TcpListener::bind(address).map(drop)
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes certificates that changed, if they are good.
fn look(watched: &mut Watched) {
    let Some(tls) = &watched.tls else { return };
    let stamps = Stamps::of(&watched.config);
    if stamps == watched.stamps {
        return;
    }
    // Said once, whatever comes of it.
    watched.stamps = stamps;
    match tls::material(&watched.config) {
        Ok(new) => {
            tls.replace(&new);
            watched.renewals.send_modify(|count| count.taken += 1);
            tracing::info!("certificates were renewed");
        }
        Err(faults) => {
            watched.renewals.send_modify(|count| count.failed += 1);
            tracing::error!("certificates stay as they were: {faults}");
        }
    }
}
