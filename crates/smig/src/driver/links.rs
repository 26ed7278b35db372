//! All connections of a session: whose turn it is to send, and in which role.
//!
//! Interactive connections send first. Bulk connections are held back while interactive responses
//! are on their way, within a budget, so that they never starve.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use smig_proto::{ConnId, ConnectionSpec, ErrorCode, Event, Identity, Instant, Session, Transmit};

use super::hold::Hold;
use super::link::{Departed, Link, Portion, Progress, Role, Stage};
use crate::connection::ConnectionInfo;
use crate::socket::{PathSample, SocketOptions};
use crate::transport::Transport;

/// How a session treats its connections.
#[derive(Clone, Debug)]
pub(crate) struct LinkOptions {
    pub(crate) interactive: SocketOptions,
    pub(crate) bulk: SocketOptions,
    /// How long one interactive response may hold bulk back.
    pub(crate) max_hold: Duration,
}

#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
    options: Arc<LinkOptions>,
    hold: Hold,
}

impl Links {
    pub(crate) fn new(options: Arc<LinkOptions>) -> Self {
        let hold = Hold::new(options.max_hold);
        Self { links: Vec::with_capacity(1), options, hold }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Makes a connection part of the session: the client's side, or a server's first one.
    pub(crate) fn add(
        &mut self,
        session: &mut Session,
        now: Instant,
        transport: Transport,
        info: ConnectionInfo,
        identity: Identity,
    ) -> ConnId {
        let info = Arc::new(info);
        let spec = ConnectionSpec { security: info.security, identity };
        let id = session.add_connection(now, spec);
        self.insert(now, id, Departed { transport, info, output: Transmit::default() });
        id
    }

    /// Takes a connection that the engine knows already.
    pub(crate) fn insert(&mut self, now: Instant, id: ConnId, departed: Departed) {
        let mut link = Link::new(id, departed);
        link.set_role(now, Role::Interactive, &self.options.interactive);
        self.links.push(link);
    }

    /// Takes a connection out, whole.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Departed> {
        let index = self.links.iter().position(|link| link.id == id)?;
        Some(self.links.remove(index).depart())
    }

    fn find(&mut self, id: ConnId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == id)
    }

    /// What the application may know of a connection.
    pub(crate) fn info(&self, id: ConnId) -> Option<&Arc<ConnectionInfo>> {
        self.links.iter().find(|link| link.id == id).map(|link| &link.info)
    }

    /// Whether the peer's SETTINGS are known.
    pub(crate) fn have_heard(&self) -> bool {
        self.links.iter().any(Link::has_heard)
    }

    /// The path of a connection, measured now.
    pub(crate) fn sample(&mut self, id: ConnId) -> PathSample {
        let Some(link) = self.find(id) else { return PathSample::default() };
        link.take_sample();
        link.sample
    }

    /// Does what an event asks of the transports.
    pub(super) fn on_event(&mut self, session: &mut Session, now: Instant, event: &Event) {
        match event {
            Event::KeyingMaterialNeeded { conn, request } => {
                let Some(link) = self.find(*conn) else { return };
                match link.transport.keying_material(request) {
                    Ok(material) => {
                        session.handle_keying_material(*conn, material, crate::entropy::nonce());
                    }
                    Err(error) => tracing::warn!(%conn, %error, "no TLS exporter; SMig stays off"),
                }
            }
            Event::Closed { conn, .. } => {
                if let Some(link) = self.find(*conn) {
                    link.end(now);
                }
            }
            Event::Abandon { conn } => {
                if let Some(link) = self.find(*conn) {
                    link.abandon(session, now);
                }
            }
            Event::Migrated { to, .. } => {
                let options = Arc::clone(&self.options);
                if let Some(link) = self.find(*to)
                    && link.role == Role::Interactive
                {
                    link.set_role(now, Role::Bulk, &options.bulk);
                }
            }
            _ => {}
        }
    }

    /// Reads the connection at `index`.
    pub(super) fn receive(
        &mut self,
        index: usize,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let Some(link) = self.links.get_mut(index) else { return Progress::None };
        let resumed = link.resume_input(session, now);
        resumed.or(link.receive(session, now, cx))
    }

    /// Sends: interactive connections first, bulk connections if nobody waits for those.
    pub(super) fn transmit(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut interactive = Progress::None;
        for link in self.links.iter_mut().filter(|link| link.role == Role::Interactive) {
            interactive = interactive.or(link.transmit(session, now, cx, Portion::All));
        }
        if self.links.iter().all(|link| link.role == Role::Interactive) {
            self.hold.forget();
            return interactive;
        }
        self.hold.on_interactive(now, interactive);
        let portion = if self.holds_bulk(session, now) { Portion::Control } else { Portion::All };
        let mut progress = interactive;
        for link in self.links.iter_mut().filter(|link| link.role == Role::Bulk) {
            progress = progress.or(link.transmit(session, now, cx, portion));
        }
        progress
    }

    /// Whether bulk waits now for interactive octets on their way.
    fn holds_bulk(&mut self, session: &Session, now: Instant) -> bool {
        let Self { links, hold, .. } = self;
        let waits = |link: &Link| link.role == Role::Bulk && session.wants_transmit(link.id);
        let wanted = links.iter().any(waits);
        hold.holds(now, wanted, || {
            let interactive = links.iter_mut().filter(|link| link.role == Role::Interactive);
            interactive.into_iter().any(|link| {
                if !link.is_blocked() {
                    link.take_sample();
                }
                link.is_blocked() || link.sample.in_flight > 0
            })
        })
    }

    /// Takes ending connections further, and forgets those that are gone.
    pub(super) fn finish(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::None;
        for link in &mut self.links {
            progress = progress.or(link.finish(session, now, cx));
        }
        self.links.retain(|link| link.stage != Stage::Gone);
        progress
    }

    /// Ends every connection now: who was told that it ends has not let go in time.
    pub(crate) fn close_all(&self, session: &mut Session) {
        for link in &self.links {
            session.close(link.id, ErrorCode::NoError, "the session has ended");
        }
    }

    /// The session's task goes to sleep.
    pub(super) fn rest(&mut self) {
        for link in &mut self.links {
            link.rest();
        }
    }

    /// When the driver must look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ends = self.links.iter().filter_map(Link::deadline).min();
        [ends, self.hold.deadline()].into_iter().flatten().min()
    }
}
