//! A running gateway: starts, reloads its configuration without closing connections, and drains.

mod certificates;
mod listeners;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smig::{AuthorityCheck, ListenerId, Server, ServerTls, ServerView, Stats};
use smig_admin::access_log::AccessLog;
use smig_admin::telemetry::{self, Telemetry, TelemetryError, TelemetrySpec};
use smig_admin::{self as admin, Admin, AdminObserver, AdminTarget};
use smig_proxy::dial::TCP_KEEPALIVE_TIMEOUT;
use smig_settings::Diagnostics;
use tokio::sync::watch;

pub use certificates::CertificateReloads;

use certificates::{CertificateWatch, lock, reload_certificates};
use listeners::{BoundListener, ConfiguredAddr, check_addresses, cleartext_trust, https_ports};

use crate::background::BackgroundThread;
use crate::config::{Config, ListenSecurity};
use crate::router::{ActiveConfig, GatewayService, LiveResources};
use crate::tls::{self, FileVersions};

/// Minimum time to flush the access log at shutdown, if the drain leaves less.
const MIN_LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a gateway cannot start, or rejects a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The configuration is invalid; includes the positions of the errors.
    #[error(transparent)]
    Config(#[from] Diagnostics),
    /// The server cannot run.
    #[error(transparent)]
    Server(#[from] smig::Error),
    /// The thread for certificates and health checks cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The export of spans to a collector cannot be started.
    #[error("telemetry: {0}")]
    Telemetry(#[from] TelemetryError),
}

/// A running gateway. Dropping it stops it at once; [`Gateway::drain`] lets streams finish.
#[derive(Debug)]
pub struct Gateway {
    server: Server,
    service: GatewayService,
    resources: LiveResources,
    listeners: Vec<BoundListener>,
    /// HTTPS ports of closed listeners that redirected: their connections may still be open.
    closed_https_ports: HashMap<ListenerId, u16>,
    certificates: Arc<Mutex<CertificateWatch>>,
    background: BackgroundThread,
    admin: Option<Admin>,
    is_draining: Arc<AtomicBool>,
    telemetry: Option<Telemetry>,
}

impl Gateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// An invalid setting, with its line and key; an address that is in use.
    pub fn start(config: Config) -> Result<Self, GatewayError> {
        // Before the files are read, so that later changes are detected.
        let versions = FileVersions::read(&config);
        let resources = LiveResources::empty().reconfigured(&config)?;
        let log = open_access_log(&config, None)?;
        let configured_addrs = check_addresses(&config, &[])?;
        let tls = load_tls(&config)?;
        let telemetry = start_telemetry(&config)?;
        let tracer = telemetry.as_ref().map(Telemetry::tracer);
        let observer = (config.admin.is_some() || tracer.is_some())
            .then(|| AdminObserver::with_tracer(tracer));
        let mut server = config.server.clone();
        // While a response idles, nothing else detects a dead client.
        for options in [&mut server.interactive, &mut server.bulk] {
            options.keepalive_timeout.get_or_insert(TCP_KEEPALIVE_TIMEOUT);
        }
        let mut builder = server.builder().authority(AuthorityCheck::Service);
        for &ConfiguredAddr { address, protocol, .. } in &configured_addrs {
            builder = match (cleartext_trust(protocol), &tls) {
                (Some(trust), _) => builder.listen_cleartext(address, trust),
                (None, Some(tls)) => builder.listen(address, tls.clone()),
                (None, None) => builder,
            };
        }
        // Determined before the first request can arrive.
        let listeners = configured_addrs.iter().zip(builder.listener_ids());
        let mut listeners: Vec<BoundListener> =
            listeners.map(|(addr, id)| BoundListener::new(addr, id, addr.address)).collect();
        let service = GatewayService::new(
            ActiveConfig::new(&config, &resources, log, https_ports(&listeners))?,
            observer.clone(),
        );
        if let Some(observer) = &observer {
            builder = builder.observer(observer.clone());
        }
        if let Some(spec) = &config.admin {
            builder = builder.request_label_limit(admin::MAX_LABEL_BYTES);
            // Requests are served before the admin port is bound; one that the system selects is
            // unknown until then.
            if spec.listen.port() != 0 {
                resources.deny_admin_port(spec.listen.port());
            }
        }
        let server = builder.start(service.clone())?;
        let is_draining = Arc::new(AtomicBool::new(false));
        let admin =
            start_admin(&config, &server, &service, observer, telemetry.as_ref(), &is_draining)?;
        if let Some(admin) = &admin {
            resources.deny_admin_port(admin.local_addr().port());
        }
        for (listener, addr) in listeners.iter_mut().zip(server.local_addrs()) {
            listener.bound_addr = *addr;
        }
        let interval = config.tls.reload_interval;
        let certificates = Arc::new(Mutex::new(CertificateWatch {
            config,
            versions,
            tls,
            reloads: watch::Sender::default(),
        }));
        let watch = Arc::clone(&certificates);
        let reload = move || reload_certificates(&mut lock(&watch));
        let background = BackgroundThread::start(interval, reload).map_err(GatewayError::Thread)?;
        for upstream in resources.upstreams() {
            background.spawn_health_checks(upstream);
        }
        Ok(Self {
            server,
            service,
            resources,
            listeners,
            closed_https_ports: HashMap::new(),
            certificates,
            background,
            admin,
            is_draining,
            telemetry,
        })
    }

    /// Checks that a configuration's files and upstreams can be used, without starting anything.
    ///
    /// # Errors
    /// The first file or upstream that cannot be used, with its line and key.
    pub fn check(config: &Config) -> Result<(), Diagnostics> {
        if tls::is_used(config) {
            // Without certificates, the development certificate is created at the start.
            match config.certificates.is_empty() {
                true => drop(tls::load_client_auth(config)?),
                false => drop(tls::load_server_tls(config)?),
            }
        }
        if let Some(Err(error)) = config.telemetry.as_ref().map(TelemetrySpec::check_files) {
            return Err(config.fault(&["telemetry", "ca"], error.to_string()));
        }
        LiveResources::empty().reconfigured(config).map(drop)
    }

    /// Applies another configuration. Connections and streams remain; upstreams whose configuration is unchanged keep
    /// their connections and health state. Returns the keys that differ and require a restart.
    ///
    /// # Errors
    /// An invalid setting, with its line and key; then nothing has changed.
    pub fn reload(&mut self, config: Config) -> Result<Vec<&'static str>, GatewayError> {
        let versions = FileVersions::read(&config);
        let resources = self.resources.reconfigured(&config)?;
        if let Some(admin) = &self.admin {
            // The admin server keeps its address, whatever the new configuration contains.
            resources.deny_admin_port(admin.local_addr().port());
        }
        let log = open_access_log(&config, Some(&self.service.config().log))?;
        let configured_addrs = check_addresses(&config, &self.listeners)?;
        let tls = load_tls(&config)?;
        // Detect all errors in the table before anything changes.
        ActiveConfig::new(&config, &resources, Arc::clone(&log), HashMap::new())?;

        // Hold the lock until the end: the watcher must not restore what is replaced here.
        let certificates = Arc::clone(&self.certificates);
        let mut certificate_watch = lock(&certificates);
        let previous_tls = match (&certificate_watch.tls, &tls) {
            (Some(running), Some(new)) => Some(running.replace(new)),
            _ => None,
        };
        let tls = certificate_watch.tls.clone().or(tls);
        let (listeners, removed_listeners) = match listeners::open(
            &mut self.server,
            &self.listeners,
            &configured_addrs,
            tls.as_ref(),
        ) {
            Ok(listeners) => listeners,
            Err((listen_index, error)) => {
                if let (Some(running), Some(before)) = (&certificate_watch.tls, &previous_tls) {
                    running.replace(before);
                }
                let at = listen_index.to_string();
                return Err(config.fault(&["listen", &at, "address"], error.to_string()).into());
            }
        };
        self.closed_https_ports.extend(https_ports(&removed_listeners));
        let mut https = self.closed_https_ports.clone();
        https.extend(https_ports(&listeners));
        self.service.replace_config(ActiveConfig::new(&config, &resources, log, https)?);
        for listener in removed_listeners {
            self.server.close(listener.id);
        }
        self.listeners = listeners;
        self.background.set_interval(config.tls.reload_interval);
        for upstream in resources.upstreams().filter(|upstream| !self.resources.contains(upstream))
        {
            self.background.spawn_health_checks(upstream);
        }
        self.resources = resources;
        let changed = config.changes_requiring_restart(&certificate_watch.config);
        let reloads = certificate_watch.reloads.clone();
        *certificate_watch = CertificateWatch { config, versions, tls, reloads };
        Ok(changed)
    }

    /// Returns the addresses with their actual ports, and the protocols.
    pub fn listeners(&self) -> impl Iterator<Item = (SocketAddr, ListenSecurity)> {
        self.listeners.iter().map(|listener| (listener.bound_addr, listener.protocol))
    }

    /// Returns the address of the admin page.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::local_addr)
    }

    /// Returns the results of reloading changed certificate files, now and after each further one.
    #[must_use]
    pub fn certificate_reloads(&self) -> watch::Receiver<CertificateReloads> {
        lock(&self.certificates).reloads.subscribe()
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// Returns a handle for the counters, which remains valid after [`drain`](Self::drain).
    #[must_use]
    pub fn view(&self) -> ServerView {
        self.server.view()
    }

    /// Shuts down gracefully: accepts nothing new and lets running streams finish; streams that are still open after
    /// `timeout` are reset. Then waits for the access log, and sends the last spans, for at most three seconds.
    ///
    /// # Errors
    /// A worker failed.
    pub async fn drain(self, timeout: Duration) -> Result<(), GatewayError> {
        self.is_draining.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + timeout;
        let result = self.server.shutdown(timeout).await;
        let remaining = deadline.saturating_duration_since(Instant::now());
        self.service.config().log.flush(remaining.max(MIN_LOG_FLUSH_TIMEOUT)).await;
        if let Some(observer) = self.service.observer() {
            observer.abort_spans();
        }
        if let Some(telemetry) = self.telemetry {
            telemetry.shutdown(telemetry::FLUSH_TIMEOUT).await;
        }
        Ok(result?)
    }
}

/// Starts the export of spans, if a collector is configured.
fn start_telemetry(config: &Config) -> Result<Option<Telemetry>, GatewayError> {
    let Some(spec) = &config.telemetry else { return Ok(None) };
    let result = Telemetry::start(spec, "smig-gateway");
    result.map(Some).map_err(|error| match error {
        TelemetryError::Trust(error) => {
            config.fault(&["telemetry", "ca"], error.to_string()).into()
        }
        other => GatewayError::from(other),
    })
}

/// Starts the admin server, if it is configured.
fn start_admin(
    config: &Config,
    server: &Server,
    service: &GatewayService,
    observer: Option<Arc<AdminObserver>>,
    telemetry: Option<&Telemetry>,
    draining: &Arc<AtomicBool>,
) -> Result<Option<Admin>, Diagnostics> {
    let (Some(spec), Some(observer)) = (&config.admin, observer) else { return Ok(None) };
    let is_draining = Arc::clone(draining);
    let ready = move || match is_draining.load(Ordering::Relaxed) {
        true => Err("draining".to_owned()),
        false => Ok(()),
    };
    let mut target = AdminTarget::new("smig gateway", server.view(), observer)
        .with_stats(Arc::new(service.clone()))
        .with_readiness(ready);
    if let Some(telemetry) = telemetry {
        target = target.with_stats(telemetry.stats());
    }
    let result = admin::start(spec, target);
    result.map(Some).map_err(|error| config.fault(&["admin", "listen"], error.to_string()))
}

/// Loads the certificates, if a listener needs them.
fn load_tls(config: &Config) -> Result<Option<ServerTls>, Diagnostics> {
    tls::is_used(config).then(|| tls::load_server_tls(config)).transpose()
}

/// Opens the access log, which replaces `previous`.
fn open_access_log(
    config: &Config,
    previous: Option<&AccessLog>,
) -> Result<Arc<AccessLog>, Diagnostics> {
    let (format, file) = (config.access_log.format, config.access_log.file.as_deref());
    let opened = match previous {
        Some(before) => before.open_replacement(format, file),
        None => AccessLog::new(format, file),
    };
    opened.map_err(|error| {
        config.fault(&["access_log", "file"], format!("cannot be opened: {error}"))
    })
}
