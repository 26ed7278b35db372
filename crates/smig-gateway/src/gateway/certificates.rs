//! The certificates of a running gateway: reloaded when their files change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smig::ServerTls;
use tokio::sync::watch;

use crate::config::Config;
use crate::tls::{self, FileVersions};

/// Number of times that changed certificate files were loaded, or could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateReloads {
    /// Loaded: the new certificates are in use.
    pub succeeded: u64,
    /// The previous certificates remained in use.
    pub failed: u64,
}

/// State of the certificate watcher.
#[derive(Debug)]
pub(super) struct CertificateWatch {
    pub(super) config: Config,
    pub(super) versions: FileVersions,
    /// `None` until the first listener uses TLS; stays after the last one is closed.
    pub(super) tls: Option<ServerTls>,
    pub(super) reloads: watch::Sender<CertificateReloads>,
}

pub(super) fn lock(watch: &Mutex<CertificateWatch>) -> MutexGuard<'_, CertificateWatch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads certificates that have changed, if they are valid.
pub(super) fn reload_certificates(watch: &mut CertificateWatch) {
    let Some(tls) = &watch.tls else { return };
    let versions = FileVersions::read(&watch.config);
    if versions == watch.versions {
        return;
    }
    // Report each change once, whatever the result.
    watch.versions = versions;
    match tls::load_server_tls(&watch.config) {
        Ok(new) => {
            tls.replace(&new);
            watch.reloads.send_modify(|count| count.succeeded += 1);
            tracing::info!("certificates reloaded");
        }
        Err(faults) => {
            watch.reloads.send_modify(|count| count.failed += 1);
            tracing::error!("certificates not reloaded, the old ones stay in use: {faults}");
        }
    }
}
