//! The plan of a run, generated from its seed: the same seed gives the same plan.
//!
//! It does not determine the scheduling on the machine, so reproducing a failure may take several runs.

use std::time::Duration;

use crate::content::{OFFSET_COUNT, Part};
use crate::relay::{PlannedFault, RelayDirection, RelayFault};
use crate::rng::Rng;

/// The component that migrates streams at the server.
#[derive(Clone, Debug)]
pub(crate) enum ServerMigration {
    /// The handlers alone, at the offsets in each request; on the server that all such runs share.
    HandlersOnly,
    /// [`smig::MigrationMode::At`], on the run's own server.
    At(Vec<u64>),
    /// The policy, on the run's own server.
    Policy,
}

/// The component that migrates streams at the client.
#[derive(Clone, Debug)]
pub(crate) enum ClientMigration {
    /// The transfers alone, at the offsets in their plans. The other variants add to it.
    TransfersOnly,
    At(Vec<u64>),
    Policy,
}

/// How a body's end is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By content-length.
    ContentLength,
    /// By END_STREAM on DATA.
    EndStream,
    /// By trailers, which carry the hash.
    Trailers,
}

/// How a download is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownloadRequestKind {
    /// GET.
    Get,
    /// GET; the server's application hints that the response should migrate.
    HintedGet,
    /// POST with a small body: the handler then has the stream's handle and can migrate it.
    Post,
}

/// One transfer.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) part: Part,
    pub(crate) framing: Framing,
    pub(crate) request_kind: DownloadRequestKind,
    /// Whether the server sends the response's header section before it has received the upload.
    pub(crate) responds_early: bool,
    /// Offsets at which the server's handler requests a migration.
    pub(crate) server_migrate_at: Vec<u64>,
    /// Offsets at which the client requests a migration.
    pub(crate) client_migrate_at: Vec<u64>,
    /// Offset at which the client cancels it.
    pub(crate) cancel_at: Option<u64>,
    /// Seed for the sizes of the body's chunks.
    pub(crate) chunk_seed: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) server_migration: ServerMigration,
    pub(crate) client_migration: ClientMigration,
    pub(crate) spares: usize,
    /// Maximum number of migrations of one stream, at the client and at a server of the run's own.
    pub(crate) max_migrations: u8,
    /// Receive window of a stream at the client.
    pub(crate) stream_window: u32,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) download: Transfer,
    pub(crate) upload: Transfer,
}

impl Plan {
    /// Generates the plan of a run with large transfers of `size` bytes.
    pub(crate) fn generate(rng: &mut Rng, size: u64) -> Self {
        let server_migration = match rng.within(0..10) {
            0..6 => ServerMigration::HandlersOnly,
            6..9 => ServerMigration::At(offsets(rng, size)),
            _ => ServerMigration::Policy,
        };
        let client_migration = match rng.within(0..10) {
            0..4 => ClientMigration::TransfersOnly,
            4..9 => ClientMigration::At(offsets(rng, size)),
            _ => ClientMigration::Policy,
        };
        let download = Transfer::generate(rng, size);
        let upload = Transfer::generate(rng, size);
        let mut faults = delays(rng, size);
        if rng.chance(50) {
            faults.extend(kills(rng, size));
        }
        Self {
            server_migration,
            client_migration,
            spares: rng.within(1..4) as usize,
            max_migrations: rng.one_of(4, &[1, 4, 8, 16]),
            stream_window: rng.one_of(1 << 20, &[64 << 10, 256 << 10, 8 << 20]),
            faults,
            download,
            upload,
        }
    }

    /// Returns the number of faults that kill a connection.
    #[cfg(test)]
    fn kill_count(&self) -> usize {
        self.faults.iter().filter(|planned| planned.fault.kills()).count()
    }
}

impl Transfer {
    fn generate(rng: &mut Rng, size: u64) -> Self {
        Self {
            part: Part { offset_index: rng.within(0..OFFSET_COUNT), len: size },
            framing: rng.one_of(Framing::ContentLength, &[Framing::EndStream, Framing::Trailers]),
            request_kind: rng.one_of(
                DownloadRequestKind::Post,
                &[
                    DownloadRequestKind::Post,
                    DownloadRequestKind::Get,
                    DownloadRequestKind::HintedGet,
                ],
            ),
            responds_early: rng.chance(50),
            server_migrate_at: offsets(rng, size),
            client_migrate_at: offsets(rng, size),
            cancel_at: rng.chance(8).then(|| rng.within(0..size)),
            chunk_seed: rng.next(),
        }
    }
}

/// Returns up to six offsets; a quarter of the lists lies within the first 256 KiB.
fn offsets(rng: &mut Rng, size: u64) -> Vec<u64> {
    let count = rng.within(0..7);
    let range = match rng.within(0..4) {
        0 => 0..(256 << 10).min(size),
        _ => 0..size,
    };
    rng.offsets(count, &range)
}

fn fault_position(rng: &mut Rng, size: u64) -> (usize, RelayDirection, u64) {
    let conn = rng.within(0..4) as usize;
    let direction = rng.one_of(RelayDirection::Up, &[RelayDirection::Down]);
    let offset = match rng.within(0..8) {
        // The handshakes, JOIN, the first requests.
        0..2 => rng.within(0..6000),
        2..4 => rng.within(0..(512 << 10).min(size)),
        4..6 => rng.within(0..size / 4),
        _ => rng.within(0..size),
    };
    (conn, direction, offset)
}

fn delays(rng: &mut Rng, size: u64) -> Vec<PlannedFault> {
    let count = rng.within(0..4);
    let delays = (0..count).map(|_| {
        let (conn, direction, offset) = fault_position(rng, size);
        let fault = if rng.chance(50) {
            RelayFault::Stall(Duration::from_millis(rng.within(5..300)))
        } else {
            RelayFault::Slow(rng.within(0..(4 << 20).min(size)))
        };
        PlannedFault { conn, direction, offset, fault }
    });
    delays.collect()
}

fn kills(rng: &mut Rng, size: u64) -> Vec<PlannedFault> {
    let count = rng.within(1..4);
    let kills = (0..count).map(|_| {
        let (conn, direction, offset) = fault_position(rng, size);
        let fault = rng.one_of(RelayFault::Reset, &[RelayFault::Fin]);
        PlannedFault { conn, direction, offset, fault }
    });
    kills.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_plans() {
        let plan = |run| format!("{:?}", Plan::generate(&mut Rng::of_run(7, run), 1 << 20));
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn about_half_of_the_plans_kill_connections() {
        let plans_with_kills = (0..1000)
            .filter(|&run| Plan::generate(&mut Rng::of_run(1, run), 1 << 20).kill_count() > 0)
            .count();
        assert!((400..600).contains(&plans_with_kills), "{plans_with_kills}");
    }
}
