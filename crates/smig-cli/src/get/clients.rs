//! The clients behind `smig get`, and whom they trust.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::Uri;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use smig::{
    ClearTrust, Cleartext, Client, ClientBuilder, Config, MoveMode, MoveRules, Observer, Trust,
};

use super::args::GetArgs;
use super::screen::Screen;
use crate::dev_cert;

/// One client for the world, and one for this machine if the development authority is there.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    world: Client,
    loopback: Option<Client>,
}

impl Clients {
    pub(super) fn new(args: &GetArgs, uris: &[&Uri], screen: &Arc<Screen>) -> Result<Self> {
        let trust = match &args.cacert {
            Some(path) => Trust::File(path.clone()),
            None if args.insecure => Trust::DangerAcceptInvalidCerts,
            None => Trust::System,
        };
        let is_default = matches!(trust, Trust::System);
        let world = builder(args, screen).trust(trust).build()?;
        let needs_loopback = is_default && uris.iter().any(|uri| is_loopback(uri));
        let loopback = match dev_cert::authority().filter(|_| needs_loopback) {
            None => None,
            Some(path) => {
                screen.detail(&format!("trusting {} for loopback names", path.display()));
                let trust = Trust::Rustls(Arc::new(with_authority(&path)?));
                Some(builder(args, screen).trust(trust).build()?)
            }
        };
        Ok(Self { world, loopback })
    }

    /// The client for a URL.
    pub(super) fn of(&self, uri: &Uri) -> &Client {
        match &self.loopback {
            Some(loopback) if is_loopback(uri) => loopback,
            _ => &self.world,
        }
    }
}

fn builder(args: &GetArgs, screen: &Arc<Screen>) -> ClientBuilder {
    let mut engine = Config::client();
    if args.no_migrate {
        engine.smig = None;
    }
    let mut rules = MoveRules::default();
    if !args.migrate_at.is_empty() {
        rules.mode = MoveMode::At(args.migrate_at.clone());
    }
    let cleartext = match (args.http2_prior_knowledge, args.trust_cleartext) {
        (false, _) => Cleartext::Http1,
        (true, false) => Cleartext::PriorKnowledge(ClearTrust::None),
        (true, true) => Cleartext::PriorKnowledge(ClearTrust::TrustedNetwork),
    };
    let observer: Arc<dyn Observer> = Arc::<Screen>::clone(screen);
    Client::builder()
        .engine(engine)
        .moves(rules)
        .cleartext(cleartext)
        .spares(args.spares)
        .connect_timeout(args.connect_timeout)
        .handshake_timeout(args.connect_timeout)
        .observer(observer)
}

/// A name that always means this machine (RFC 6761 section 6.3).
fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let lower = bare.to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What the system trusts, and the development authority.
fn with_authority(path: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // A system without authorities can have this one nevertheless.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let bad =
        || format!("the development authority {} is damaged; delete its folder", path.display());
    for certificate in CertificateDer::pem_file_iter(path).with_context(bad)? {
        roots.add(certificate.with_context(bad)?).with_context(bad)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for yes in [
            "https://localhost/",
            "https://LOCALHOST:1/",
            "https://a.localhost/",
            "https://127.1.2.3/",
            "https://[::1]/",
        ] {
            assert!(is_loopback(&yes.parse().unwrap()), "{yes}");
        }
        for no in [
            "https://localhost.example/",
            "https://example.org/",
            "https://10.0.0.1/",
            "https://[2001:db8::1]/",
        ] {
            assert!(!is_loopback(&no.parse().unwrap()), "{no}");
        }
    }
}
