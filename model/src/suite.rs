//! The scenarios that are checked.
//!
//! There are several small ones: each combines a few kinds of events, and together they combine
//! every pair that matters.

mod resumption;

use crate::omission::Omission;
use crate::scenario::{Budget, EndAt, Scenario};

/// Size of the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For the program: exhaustive within wider bounds; takes one to two minutes.
    Full,
    /// For `cargo test`: the same scenarios with narrower bounds, some without some of their events;
    /// takes some seconds.
    Small,
}

const NO_EVENTS: Budget = Budget {
    client_migrations: 0,
    server_migrations: 0,
    offers: 0,
    declines: 0,
    client_resets: 0,
    server_resets: 0,
    losses: 0,
    goaways: 0,
    timeouts: 0,
    stops: 0,
    pulls: 0,
    receipts: 0,
    settings_changes: 0,
};

/// A GET: the client's direction ends with its HEADERS.
const DOWNLOAD: Scenario = Scenario {
    mover: "",
    transfer: "",
    conns: 2,
    upload_units: 0,
    download_units: 2,
    window: 1,
    end_at: EndAt::LastUnit,
    has_joining_conn: false,
    is_request_in_flight: false,
    has_resumption: false,
    budget: NO_EVENTS,
    omission: None,
};

/// A POST with a response: data in both directions; END_STREAM is sent alone.
const UPLOAD: Scenario =
    Scenario { upload_units: 2, download_units: 1, end_at: EndAt::Alone, ..DOWNLOAD };

/// A tunnel; the last unit of each direction has END_STREAM.
const TUNNEL: Scenario = Scenario { upload_units: 2, download_units: 2, ..DOWNLOAD };

/// Returns all scenarios of a size.
#[must_use]
pub fn suite(size: Size) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    scenarios.extend(one_mover("server", Budget { server_migrations: 1, ..NO_EVENTS }));
    scenarios.extend(one_mover("client", Budget { client_migrations: 1, ..NO_EVENTS }));
    scenarios.extend(two_movers());
    scenarios.extend(joining_connections());
    scenarios.extend(offers());
    scenarios.extend(repeated_migrations());
    scenarios.extend(stopped_uploads());
    scenarios.extend(resumption::suite());
    if size == Size::Small {
        scenarios.iter_mut().for_each(Scenario::narrow);
    }
    scenarios
}

/// Returns a small scenario whose properties hold, and are violated if the rule is left out.
#[must_use]
pub fn witness(omission: Omission) -> Scenario {
    let server_budget = Budget { server_migrations: 1, ..NO_EVENTS };
    let client_budget = Budget { client_migrations: 1, ..NO_EVENTS };
    let both_budget = Budget { server_migrations: 1, client_migrations: 1, ..NO_EVENTS };
    let upload = Scenario {
        mover: "each side",
        transfer: "an upload",
        upload_units: 1,
        budget: both_budget,
        ..UPLOAD
    };
    let download =
        Scenario { mover: "server", transfer: "a download", budget: server_budget, ..DOWNLOAD };
    let decline_budget = Budget { declines: 1, ..server_budget };
    match omission {
        Omission::ClientSendsBeforeAnswer => {
            Scenario { mover: "client", budget: client_budget, ..upload }
        }
        Omission::InitialWindowOfCarrier => download,
        Omission::EarlyDataDelivered => Scenario { window: 2, ..download },
        Omission::ForgetAtEnd
        | Omission::ResumeAfterDroppedBytes
        | Omission::DroppedBytesStayCounted => Scenario { budget: decline_budget, ..download },
        Omission::NoAnswerWhenClosed => {
            Scenario { budget: Budget { client_resets: 1, ..server_budget }, ..download }
        }
        Omission::ClosedCarrierAccepted => {
            Scenario { budget: Budget { server_resets: 1, ..server_budget }, ..download }
        }
        Omission::ResetForgotten => {
            Scenario { budget: Budget { server_resets: 1, ..decline_budget }, ..download }
        }
        Omission::AcceptanceAssumed => {
            Scenario { budget: Budget { losses: 1, ..server_budget }, ..download }
        }
        Omission::GoAwayExcludesBound => {
            Scenario { budget: Budget { goaways: 1, ..server_budget }, ..download }
        }
        Omission::CreditNotRepeated => {
            Scenario { upload_units: 2, budget: decline_budget, ..upload }
        }
        Omission::SettingsSkipped => Scenario {
            window: 2,
            budget: Budget { settings_changes: 1, ..decline_budget },
            ..download
        },
        Omission::UnboundCreditDropped => {
            Scenario { upload_units: 2, budget: server_budget, ..upload }
        }
        Omission::OfferWithdrawn => {
            Scenario { budget: Budget { offers: 1, ..server_budget }, ..download }
        }
        Omission::TruncatedRequestAccepted => {
            Scenario { budget: Budget { client_resets: 1, declines: 1, ..both_budget }, ..upload }
        }
        Omission::EndLostInCollision => {
            Scenario { budget: Budget { declines: 1, ..both_budget }, ..upload }
        }
        Omission::NextMigrateIgnored | Omission::ServerFollowsInCollision => upload,
        Omission::StopBeforeAnswer => {
            Scenario { budget: Budget { stops: 1, ..decline_budget }, ..upload }
        }
        Omission::StopProcessedAtOnce | Omission::CrossingStopFailsStream => {
            Scenario { budget: Budget { stops: 1, ..client_budget }, ..upload }
        }
        _ => resumption::witness(omission),
    }
}

/// One side moves once, combined with every kind of failure.
fn one_mover(mover: &'static str, base: Budget) -> Vec<Scenario> {
    let failures = Budget { declines: 1, losses: 2, client_resets: 1, server_resets: 1, ..base };
    let drain = Budget { goaways: 1, timeouts: 1, declines: 1, losses: 1, ..base };
    let settings = Budget { declines: 1, settings_changes: 1, ..base };
    vec![
        Scenario { mover, transfer: "a download", download_units: 3, budget: failures, ..DOWNLOAD },
        Scenario { mover, transfer: "an upload", budget: failures, ..UPLOAD },
        Scenario { mover, transfer: "a tunnel", budget: drain, ..TUNNEL },
        Scenario { mover, transfer: "an upload", window: 2, budget: settings, ..UPLOAD },
    ]
}

/// Both sides move, simultaneously or one after the other.
fn two_movers() -> Vec<Scenario> {
    let mover = "each side";
    let movers = Budget { server_migrations: 1, client_migrations: 1, declines: 1, ..NO_EVENTS };
    let losses = Budget { losses: 2, ..movers };
    let resets = Budget { client_resets: 1, server_resets: 1, ..movers };
    let drain = Budget { goaways: 2, timeouts: 1, ..movers };
    let mixed_failures = Budget { losses: 1, client_resets: 1, timeouts: 1, ..movers };
    let settings = Budget { settings_changes: 1, ..movers };
    vec![
        Scenario { mover, transfer: "an upload", budget: losses, ..UPLOAD },
        Scenario { mover, transfer: "a tunnel", budget: mixed_failures, ..TUNNEL },
        Scenario { mover, transfer: "an upload", budget: resets, ..UPLOAD },
        Scenario { mover, transfer: "a tunnel", budget: drain, ..TUNNEL },
        Scenario { mover, transfer: "an upload", window: 2, budget: settings, ..UPLOAD },
    ]
}

/// The answer to the second connection's JOIN is in flight.
fn joining_connections() -> Vec<Scenario> {
    let base = Scenario { mover: "server", has_joining_conn: true, ..UPLOAD };
    let moves = Budget { server_migrations: 1, declines: 1, ..NO_EVENTS };
    let failures = Budget { losses: 1, client_resets: 1, server_resets: 1, ..moves };
    let settings = Budget { settings_changes: 1, ..moves };
    let both_budget = Budget { client_migrations: 1, goaways: 1, ..moves };
    vec![
        Scenario { transfer: "an upload", budget: failures, ..base },
        Scenario { transfer: "an upload", window: 2, budget: settings, ..base },
        Scenario { mover: "each side", transfer: "an upload", budget: both_budget, ..base },
    ]
}

/// The server sends an offer; the client moves or declines.
fn offers() -> Vec<Scenario> {
    let mover = "client";
    let offer = Budget { offers: 1, client_migrations: 1, declines: 1, ..NO_EVENTS };
    let failures = Budget { losses: 2, client_resets: 1, server_resets: 1, ..offer };
    let two_offers = Budget { offers: 2, server_migrations: 1, losses: 1, ..offer };
    vec![
        Scenario { mover, transfer: "a download", download_units: 3, budget: failures, ..DOWNLOAD },
        Scenario { mover: "each side", transfer: "a tunnel", budget: two_offers, ..TUNNEL },
    ]
}

/// Three connections and several moves.
fn repeated_migrations() -> Vec<Scenario> {
    let download = Scenario { mover: "server", conns: 3, ..DOWNLOAD };
    let tunnel = Scenario {
        mover: "each side",
        conns: 3,
        upload_units: 1,
        download_units: 1,
        end_at: EndAt::Alone,
        ..DOWNLOAD
    };
    let server_budget = Budget { server_migrations: 3, declines: 1, losses: 2, ..NO_EVENTS };
    let both_budget = Budget { server_migrations: 1, client_migrations: 1, ..NO_EVENTS };
    let losses = Budget { declines: 1, losses: 1, ..both_budget };
    let resets = Budget { client_resets: 1, server_resets: 1, ..both_budget };
    let drain = Budget { goaways: 1, timeouts: 1, ..both_budget };
    let two_each = Budget { server_migrations: 2, client_migrations: 2, ..NO_EVENTS };
    vec![
        Scenario { transfer: "a download", budget: server_budget, ..download },
        Scenario { transfer: "a tunnel", budget: losses, ..tunnel },
        Scenario { transfer: "a tunnel", budget: resets, ..tunnel },
        Scenario { transfer: "a tunnel", budget: drain, ..tunnel },
        Scenario { transfer: "a tunnel", budget: two_each, ..tunnel },
    ]
}

/// The response completes before its upload, which the server stops (RFC 9113 section 8.1).
fn stopped_uploads() -> Vec<Scenario> {
    let stop = Budget { stops: 1, declines: 1, ..NO_EVENTS };
    let server_budget = Budget { server_migrations: 1, ..stop };
    let client_budget = Budget { client_migrations: 1, ..stop };
    let both_budget = Budget { server_migrations: 1, client_migrations: 1, ..stop };
    let settings = Budget { settings_changes: 1, ..server_budget };
    let failures = |moves| Budget { losses: 1, client_resets: 1, timeouts: 1, ..moves };
    let upload = Scenario { transfer: "an upload that is stopped", ..UPLOAD };
    vec![
        Scenario { mover: "server", budget: failures(server_budget), ..upload },
        Scenario { mover: "client", budget: failures(client_budget), ..upload },
        Scenario {
            mover: "each side",
            transfer: "an upload that is stopped",
            budget: Budget { goaways: 1, ..both_budget },
            ..upload
        },
        Scenario {
            mover: "client",
            transfer: "an upload that is stopped",
            budget: Budget { offers: 1, losses: 1, ..client_budget },
            ..upload
        },
        Scenario {
            mover: "server",
            transfer: "an upload that is stopped",
            has_joining_conn: true,
            budget: Budget { losses: 1, ..server_budget },
            ..upload
        },
        Scenario {
            mover: "server",
            transfer: "an upload that is stopped",
            window: 2,
            budget: settings,
            ..upload
        },
        Scenario {
            mover: "each side",
            transfer: "an upload that is stopped",
            conns: 3,
            upload_units: 1,
            budget: Budget { declines: 0, ..both_budget },
            ..upload
        },
    ]
}
