//! The bounds of one exploration.
//!
//! A scenario says what exists (connections, bytes, windows) and how often each thing may happen.
//! Everything within it is tried; nothing outside it is. Must never know how endpoints work.

use std::fmt;

use crate::omission::Omission;

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Moves that the client starts.
    pub client_moves: u8,
    /// Moves that the server starts.
    pub server_moves: u8,
    /// Offers of the server.
    pub offers: u8,
    /// Declines that the follower chooses freely; those that the rules demand are not counted.
    pub declines: u8,
    /// Resets by the client, by RST_STREAM or by closing the stream's connection.
    pub client_resets: u8,
    /// Resets by the server, likewise.
    pub server_resets: u8,
    /// Losses of a connection.
    pub losses: u8,
    /// GOAWAY frames, from either side on any connection.
    pub goaways: u8,
    /// Times that `unbound_timeout` fires, at any moment.
    pub timeouts: u8,
    /// RST_STREAM(NO_ERROR) of the server, behind the whole response (RFC 9113 section 8.1).
    pub stops: u8,
    /// Changes of SETTINGS_INITIAL_WINDOW_SIZE on the first connection, up or down, from either side.
    pub settings: u8,
}

/// Where END_STREAM travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndAt {
    /// On the last unit.
    LastUnit,
    /// On an empty DATA frame behind it, or on a MIGRATE that is sent before that.
    Alone,
}

/// One exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Who moves.
    pub who: &'static str,
    /// What is moved, and what else may happen.
    pub what: &'static str,
    /// Connections of the session, at most 3.
    pub conns: u8,
    /// Units from client to server; 0: the request ended with its HEADERS.
    pub up: u8,
    /// Units from server to client.
    pub down: u8,
    /// The initial window of both directions, in units.
    pub window: u8,
    /// Whether END_STREAM travels with the last unit or behind it.
    pub end: EndAt,
    /// Whether the answer to the second connection's JOIN is still under way to the client.
    pub joining: bool,
    /// What may happen.
    pub budget: Budget,
    /// The rule that the endpoints break, if any.
    pub omission: Option<Omission>,
}

impl Scenario {
    /// The same scenario with one rule left out.
    #[must_use]
    pub fn without(self, omission: Omission) -> Self {
        Self { omission: Some(omission), ..self }
    }

    /// The same with fewer units and events: what two movers cross costs the most, so they get the least.
    pub(crate) fn narrow(&mut self) {
        self.up = if self.conns > 2 { 0 } else { self.up.min(1) };
        self.down = self.down.min(if self.up == 0 { 2 } else { 1 });
        let budget = &mut self.budget;
        budget.losses = budget.losses.min(1);
        budget.goaways = budget.goaways.min(1);
        let moves = budget.client_moves + budget.server_moves;
        if moves > 1 || self.joining || self.up > 0 {
            budget.server_resets = 0;
        }
        if moves > 1 || self.joining {
            budget.losses = 0;
        }
        if moves > 1 {
            budget.client_moves = budget.client_moves.min(1);
            budget.server_moves = budget.server_moves.min(2);
            budget.timeouts = 0;
            budget.declines = 0;
            budget.offers = budget.offers.min(1);
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} moves {}", self.who, self.what)?;
        if let Some(omission) = self.omission {
            write!(f, ", {omission}")?;
        }
        Ok(())
    }
}
