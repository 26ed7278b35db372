//! The servers: two workers each, TLS, a certificate of this process's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use smig::{Config, MoveMode, MoveRules, Server, ServerTls};

use crate::plan::ServerMoves;
use crate::service::{Application, Fired, Stage};

/// Time for a handshake at either end: a machine under load is no reason to fail.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(60);

/// A self-signed certificate for localhost.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    key: String,
}

impl Identity {
    pub(crate) fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .context("cannot make a certificate")?;
        Ok(Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() })
    }
}

/// Starts a server.
pub(crate) fn serve(
    stage: &Arc<Stage>,
    identity: &Identity,
    moves: &ServerMoves,
    max_moves: u8,
) -> Result<Server> {
    let tls = ServerTls::from_pem(identity.certificate.as_bytes(), identity.key.as_bytes())?;
    let mut rules = MoveRules::default();
    rules.mode = match moves {
        ServerMoves::Asked => MoveMode::Never,
        ServerMoves::At(offsets) => MoveMode::At(offsets.clone()),
        ServerMoves::Policy => MoveMode::Policy,
    };
    let mut engine = Config::server();
    engine.limits.preface_timeout = HANDSHAKE;
    if let Some(smig) = &mut engine.smig {
        smig.max_moves = max_moves;
    }
    // Two, so that joins cross from one worker to the other.
    let workers = NonZeroUsize::new(2).context("two is not zero")?;
    let server = Server::builder()
        .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls)
        .workers(workers)
        .handshake_timeout(HANDSHAKE)
        .engine(engine)
        .moves(rules)
        .observer(Arc::<Fired>::clone(&stage.fired))
        .start(Application::new(stage))?;
    Ok(server)
}
