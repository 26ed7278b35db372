//! The bounds of one exploration.
//!
//! A scenario defines the connections, bytes and windows, and how often each event may occur.
//! Everything within these bounds is tried. Must never depend on the endpoints' implementation.

use std::fmt;

use crate::omission::Omission;

/// How often each event may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Moves by the client.
    pub client_migrations: u8,
    /// Moves by the server.
    pub server_migrations: u8,
    /// Offers by the server.
    pub offers: u8,
    /// Declines that the follower chooses; those that the rules require are not counted.
    pub declines: u8,
    /// Resets by the client, by RST_STREAM or by closing the stream's connection.
    pub client_resets: u8,
    /// Resets by the server, in the same ways.
    pub server_resets: u8,
    /// Losses of a connection.
    pub losses: u8,
    /// GOAWAY frames, from either side on any connection.
    pub goaways: u8,
    /// Expirations of `unbound_timeout`, at any time.
    pub timeouts: u8,
    /// RST_STREAM(NO_ERROR) of the server, after the complete response (RFC 9113 section 8.1).
    pub stops: u8,
    /// Resumptions of a stream whose connection lives.
    pub pulls: u8,
    /// Receipts, by either side on any connection.
    pub receipts: u8,
    /// Changes of SETTINGS_INITIAL_WINDOW_SIZE on the first connection, up or down, by either side.
    pub settings_changes: u8,
}

/// What may occur apart from one move by each side: `; 2 losses, a reset`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moves = self.client_migrations.max(self.server_migrations);
        let mut separator = "; ";
        for (count, one, several) in [
            (if moves > 1 { moves } else { 0 }, "a move", "moves by one side"),
            (self.offers, "an offer", "offers"),
            (self.declines, "a decline", "declines"),
            (self.losses, "a loss", "losses"),
            (self.client_resets + self.server_resets, "a reset", "resets"),
            (self.goaways, "a GOAWAY", "GOAWAYs"),
            (self.timeouts, "a timeout", "timeouts"),
            (self.stops, "a stop", "stops"),
            (self.pulls, "a pull", "pulls"),
            (self.receipts, "a receipt", "receipts"),
            (self.settings_changes, "SETTINGS", "SETTINGS"),
        ] {
            match count {
                0 => continue,
                1 => write!(f, "{separator}{one}")?,
                _ => write!(f, "{separator}{count} {several}")?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

/// The frame that carries END_STREAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndAt {
    /// The DATA frame with the last unit.
    LastUnit,
    /// An empty DATA frame after it, or a MIGRATE that is sent before that frame.
    Alone,
}

/// One exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The side that moves.
    pub mover: &'static str,
    /// The kind of transfer, for people.
    pub transfer: &'static str,
    /// Number of connections in the session, at most 3.
    pub conns: u8,
    /// Units from client to server; 0: the request ends with its HEADERS.
    pub upload_units: u8,
    /// Units from server to client.
    pub download_units: u8,
    /// Initial window of both directions, in units.
    pub window: u8,
    /// The frame that carries END_STREAM.
    pub end_at: EndAt,
    /// Whether the answer to the second connection's JOIN is in flight to the client.
    pub has_joining_conn: bool,
    /// Whether the request is in flight to the server.
    pub is_request_in_flight: bool,
    /// Whether streams are resumed.
    pub has_resumption: bool,
    /// The possible events.
    pub budget: Budget,
    /// The rule that the endpoints leave out, if any.
    pub omission: Option<Omission>,
}

impl Scenario {
    /// Returns the scenario with one rule left out.
    #[must_use]
    pub fn with_omission(self, omission: Omission) -> Self {
        Self { omission: Some(omission), ..self }
    }

    /// Reduces units and events, some to none. Scenarios with two movers have the most states, so
    /// they are reduced the most.
    pub(crate) fn narrow(&mut self) {
        if self.conns > 2 {
            (self.upload_units, self.transfer) = (0, "a download");
        }
        self.upload_units = self.upload_units.min(1);
        self.download_units = self.download_units.min(if self.upload_units == 0 { 2 } else { 1 });
        let budget = &mut self.budget;
        budget.losses = budget.losses.min(1);
        budget.goaways = budget.goaways.min(1);
        let migrations = budget.client_migrations + budget.server_migrations;
        if migrations > 1 || self.has_joining_conn || self.upload_units > 0 {
            budget.server_resets = 0;
        }
        if migrations > 1 || self.has_joining_conn {
            budget.losses = if self.has_resumption { budget.losses.min(1) } else { 0 };
        }
        if migrations > 1 {
            budget.client_migrations = budget.client_migrations.min(1);
            budget.server_migrations = budget.server_migrations.min(2);
            budget.timeouts = 0;
            budget.declines = 0;
            budget.offers = budget.offers.min(1);
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} moves {}", self.mover, self.transfer)?;
        if self.conns > 2 {
            write!(f, " among {} connections", self.conns)?;
        }
        if self.has_joining_conn {
            f.write_str(" to a joining connection")?;
        }
        if self.is_request_in_flight {
            f.write_str(" whose request is in flight")?;
        }
        if self.has_resumption {
            f.write_str(", resumed")?;
        }
        write!(f, "{}", self.budget)?;
        if let Some(omission) = self.omission {
            write!(f, ", {omission}")?;
        }
        Ok(())
    }
}
