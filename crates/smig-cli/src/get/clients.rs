//! The clients of `smig get`, and their trust anchors.

use std::sync::Arc;

use anyhow::Result;
use http::Uri;
use smig::{
    Cleartext, CleartextTrust, Client, ClientBuilder, Config, MigrationConfig, MigrationMode,
    Observer, RangeContinuation, Trust,
};

use super::args::GetArgs;
use super::screen::Screen;
use crate::{dev_cert, trust};

/// Default of `--plain-connections` without `--no-migrate`.
const DEFAULT_PLAIN_CONNECTIONS: usize = 2;

/// A client for all hosts, and one for loopback hosts that also trusts the development authority,
/// if it exists.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    default_client: Client,
    loopback_client: Option<Client>,
}

impl Clients {
    pub(super) fn new(args: &GetArgs, uris: &[&Uri], screen: &Arc<Screen>) -> Result<Self> {
        let trust = match &args.cacert {
            Some(path) => Trust::File(path.clone()),
            None if args.insecure => Trust::DangerAcceptInvalidCerts,
            None => Trust::System,
        };
        let uses_system_trust = matches!(trust, Trust::System);
        let default_client = builder(args, screen).trust(trust).build()?;
        let needs_loopback = uses_system_trust && uris.iter().any(|uri| is_loopback(uri));
        let loopback_client = match dev_cert::authority_path().filter(|_| needs_loopback) {
            None => None,
            Some(path) => {
                screen.print_detail(&format!("trusting {} for loopback names", path.display()));
                let trust = Trust::Rustls(Arc::new(trust::client_config_with_authority(&path)?));
                Some(builder(args, screen).trust(trust).build()?)
            }
        };
        Ok(Self { default_client, loopback_client })
    }

    /// Returns the client for a URL.
    pub(super) fn for_uri(&self, uri: &Uri) -> &Client {
        match &self.loopback_client {
            Some(loopback) if is_loopback(uri) => loopback,
            _ => &self.default_client,
        }
    }
}

fn builder(args: &GetArgs, screen: &Arc<Screen>) -> ClientBuilder {
    let mut engine = Config::client();
    if args.no_migrate {
        engine.smig = None;
    }
    let mut migration = MigrationConfig::default();
    if !args.migrate_at.is_empty() {
        migration.mode = MigrationMode::At(args.migrate_at.clone());
    }
    let cleartext = match (args.http2_prior_knowledge, args.trust_cleartext) {
        (false, _) => Cleartext::Http1,
        (true, false) => Cleartext::PriorKnowledge(CleartextTrust::None),
        (true, true) => Cleartext::PriorKnowledge(CleartextTrust::TrustedNetwork),
    };
    let range_continuation = if args.no_range_continuation {
        RangeContinuation::Off
    } else {
        RangeContinuation::Verified
    };
    let default_connections = if args.no_migrate { 1 } else { DEFAULT_PLAIN_CONNECTIONS };
    let plain_connections = args.plain_connections.map_or(default_connections, usize::from);
    let observer: Arc<dyn Observer> = Arc::<Screen>::clone(screen);
    Client::builder()
        .engine(engine)
        .migration(migration)
        .cleartext(cleartext)
        .spares(args.spares)
        .plain_connections(plain_connections)
        .receive_pacing(args.receive_pacing)
        .range_continuation(range_continuation)
        .connect_timeout(args.connect_timeout)
        .handshake_timeout(args.connect_timeout)
        .observer(observer)
}

fn is_loopback(uri: &Uri) -> bool {
    trust::is_loopback(uri.host().unwrap_or_default())
}
