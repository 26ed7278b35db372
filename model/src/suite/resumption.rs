//! Scenarios in which streams go on after the end of their connection.

use super::{DOWNLOAD, NO_EVENTS, TUNNEL, UPLOAD};
use crate::omission::Omission;
use crate::scenario::{Budget, EndAt, Scenario};

/// A tunnel of one unit each way, over three connections.
const SHORT: Scenario = Scenario {
    mover: "nobody",
    transfer: "a tunnel",
    conns: 3,
    upload_units: 1,
    download_units: 1,
    end_at: EndAt::LastUnit,
    has_resumption: true,
    ..DOWNLOAD
};

pub(super) fn suite() -> Vec<Scenario> {
    let download = Scenario { transfer: "a download", upload_units: 0, download_units: 2, ..SHORT };
    let upload =
        Scenario { has_resumption: true, mover: "nobody", transfer: "an upload", ..UPLOAD };
    let tunnel = Scenario { has_resumption: true, mover: "nobody", transfer: "a tunnel", ..TUNNEL };
    let loss = Budget { losses: 1, receipts: 1, ..NO_EVENTS };
    let two_losses = Budget { losses: 2, ..loss };
    let pulls = Budget { pulls: 2, losses: 1, receipts: 1, ..NO_EVENTS };
    let losses_only = Budget { losses: 1, ..NO_EVENTS };
    let one_pull = Budget { pulls: 1, ..losses_only };
    let settings = Budget { settings_changes: 1, pulls: 1, ..NO_EVENTS };
    let pulled = |base| Budget { pulls: 1, losses: 0, ..base };
    let drained = |base| Budget { goaways: 1, receipts: 0, ..base };
    let resets = |base| Budget { client_resets: 1, server_resets: 1, ..base };
    let server_moves = Budget { server_migrations: 1, ..loss };
    let client_moves = Budget { client_migrations: 1, ..loss };
    let both_move = Budget { server_migrations: 1, receipts: 0, ..client_moves };
    let declines = |base| Budget { declines: 1, receipts: 0, ..base };
    vec![
        Scenario { budget: two_losses, ..download },
        Scenario { budget: two_losses, conns: 2, ..download },
        Scenario { budget: two_losses, ..SHORT },
        Scenario { budget: resets(loss), ..download },
        Scenario { budget: resets(losses_only), ..SHORT },
        Scenario { budget: loss, upload_units: 1, ..upload },
        Scenario { budget: loss, window: 2, ..tunnel },
        Scenario { budget: pulls, ..download },
        Scenario { budget: Budget { receipts: 0, ..pulls }, ..SHORT },
        Scenario { budget: resets(one_pull), ..SHORT },
        Scenario { budget: Budget { goaways: 1, ..loss }, ..SHORT },
        Scenario {
            budget: Budget { goaways: 1, client_resets: 1, pulls: 1, ..NO_EVENTS },
            ..download
        },
        Scenario { mover: "server", budget: drained(server_moves), ..download },
        Scenario { mover: "client", budget: drained(client_moves), ..download },
        Scenario { budget: settings, window: 2, ..download },
        Scenario { is_request_in_flight: true, budget: resets(one_pull), ..download },
        Scenario { is_request_in_flight: true, budget: one_pull, ..SHORT },
        Scenario { mover: "server", budget: server_moves, ..download },
        Scenario { mover: "server", budget: server_moves, ..SHORT },
        Scenario { mover: "server", budget: declines(server_moves), ..SHORT },
        Scenario {
            mover: "server",
            budget: resets(Budget { receipts: 0, ..server_moves }),
            ..download
        },
        Scenario { mover: "server", budget: pulled(server_moves), ..download },
        Scenario { mover: "server", has_joining_conn: true, budget: server_moves, ..download },
        Scenario {
            mover: "server",
            has_joining_conn: true,
            budget: Budget { client_resets: 1, ..pulled(Budget { receipts: 0, ..server_moves }) },
            ..download
        },
        Scenario { mover: "client", budget: client_moves, ..download },
        Scenario { mover: "client", budget: client_moves, ..SHORT },
        Scenario { mover: "client", budget: declines(client_moves), ..SHORT },
        Scenario {
            mover: "client",
            budget: resets(Budget { receipts: 0, ..client_moves }),
            ..download
        },
        Scenario { mover: "client", budget: pulled(client_moves), ..download },
        Scenario {
            mover: "client",
            budget: Budget { offers: 1, receipts: 0, ..client_moves },
            ..download
        },
        Scenario { mover: "each side", budget: both_move, ..SHORT },
    ]
}

/// Returns a small scenario that is violated if a rule of `spec/resumption.md` is left out.
pub(super) fn witness(omission: Omission) -> Scenario {
    let download = Scenario { transfer: "a download", upload_units: 0, download_units: 2, ..SHORT };
    let loss = Budget { losses: 1, ..NO_EVENTS };
    let pull = Budget { pulls: 1, ..NO_EVENTS };
    let client_moves = Budget { client_migrations: 1, ..NO_EVENTS };
    let (mover, base, budget) = match omission {
        Omission::FreedAcrossGap | Omission::FreedBehindAnswer => {
            ("client", download, Budget { losses: 1, receipts: 1, ..client_moves })
        }
        Omission::EarlyUsedAfterResume => {
            ("client", Scenario { window: 2, ..download }, Budget { pulls: 1, ..client_moves })
        }
        Omission::LostAnswerUnnoticed => {
            ("server", download, Budget { server_migrations: 1, ..loss })
        }
        Omission::OlderAttemptTaken | Omission::LostOvertakes => {
            ("nobody", SHORT, Budget { losses: 1, ..pull })
        }
        Omission::ReceiptWhileResuming => ("nobody", download, Budget { receipts: 1, ..pull }),
        Omission::EarlierCopyCovered => {
            ("nobody", SHORT, Budget { losses: 1, receipts: 1, ..pull })
        }
        Omission::EarlierIdServed => ("nobody", SHORT, pull),
        Omission::KeptFreedWhileResuming => ("nobody", SHORT, Budget { receipts: 1, ..pull }),
        Omission::TombstoneForgotten => {
            ("nobody", Scenario { is_request_in_flight: true, ..download }, pull)
        }
        Omission::ResetTakenForUnknown => ("nobody", download, Budget { server_resets: 1, ..loss }),
        Omission::ResetEarlierForgotten => {
            ("nobody", download, Budget { client_resets: 1, losses: 1, ..pull })
        }
        Omission::CancelNotTold => ("nobody", download, Budget { client_resets: 1, ..loss }),
        _ => ("nobody", download, loss),
    };
    Scenario { mover, budget, ..base }
}
