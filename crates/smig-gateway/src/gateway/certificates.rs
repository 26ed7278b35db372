//! The certificates of a running gateway: loaded again when their files change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smig::ServerTls;
use tokio::sync::watch;

use crate::config::Config;
use crate::tls::{self, FileVersions};

/// Number of times that changed certificate files were loaded, or could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateReloads {
    /// Loaded: the new certificates are in use.
    pub taken: u64,
    /// The previous certificates remained in use.
    pub failed: u64,
}

/// State of the certificate watcher.
#[derive(Debug)]
pub(super) struct CertificateWatch {
    pub(super) config: Config,
    pub(super) stamps: FileVersions,
    /// `None` while no listener uses TLS.
    pub(super) tls: Option<ServerTls>,
    pub(super) renewals: watch::Sender<CertificateReloads>,
}

pub(super) fn lock(watched: &Mutex<CertificateWatch>) -> MutexGuard<'_, CertificateWatch> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads certificates that have changed, if they are valid.
pub(super) fn reload_certificates(watched: &mut CertificateWatch) {
    let Some(tls) = &watched.tls else { return };
    let stamps = FileVersions::of(&watched.config);
    if stamps == watched.stamps {
        return;
    }
    // Report each change once, whatever the result.
    watched.stamps = stamps;
    match tls::load_server_tls(&watched.config) {
        Ok(new) => {
            tls.replace(&new);
            watched.renewals.send_modify(|count| count.taken += 1);
            tracing::info!("certificates reloaded");
        }
        Err(faults) => {
            watched.renewals.send_modify(|count| count.failed += 1);
            tracing::error!("certificates not reloaded, the old ones stay in use: {faults}");
        }
    }
}
