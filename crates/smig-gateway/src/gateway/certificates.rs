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
    let Some(tls) = watch.tls.as_ref().filter(|_| tls::is_used(&watch.config)) else { return };
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_of_a_configuration_without_tls_are_not_loaded() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let text = |protocol: &str| {
            format!(
                "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = '{protocol}'\n\
                 [tls]\nclient_ca = '/nothing/here'\n"
            )
        };
        for (protocol, failed) in [("cleartext", 0), ("tls", 1)] {
            let config = Config::parse(&text(protocol), Path::new("/gateway.toml")).unwrap();
            let mut watch = CertificateWatch {
                config,
                versions: FileVersions::default(),
                // Of a listener that a reload has removed.
                tls: Some(ServerTls::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()),
                reloads: watch::Sender::default(),
            };
            reload_certificates(&mut watch);
            assert_eq!(watch.reloads.borrow().failed, failed, "{protocol}");
        }
    }
}
