//! The plan of a run, generated from its seed: the same seed gives the same plan.
//!
//! It does not determine the scheduling on the machine, so reproducing a failure may take several runs.

use std::time::Duration;

use crate::content::{PLACES, Part};
use crate::dice::Rng;
use crate::relay::{Planned, RelayDirection, RelayFault};

/// The component that migrates streams at the server.
#[derive(Clone, Debug)]
pub(crate) enum ServerMoves {
    /// The handlers, at the offsets in each request; on the server that exists for the complete soak.
    Asked,
    /// [`smig::MigrationMode::At`], on the run's own server.
    At(Vec<u64>),
    /// The policy, on the run's own server.
    Policy,
}

/// The component that migrates streams at the client, in addition to the response readers.
#[derive(Clone, Debug)]
pub(crate) enum ClientMoves {
    Nobody,
    At(Vec<u64>),
    Policy,
}

/// How a body's end is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By content-length.
    Announced,
    /// By END_STREAM on DATA.
    Open,
    /// By trailers, which carry the hash.
    Trailers,
}

/// How a download is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// GET.
    Get,
    /// GET; the server's application hints that the response should migrate.
    Hinted,
    /// POST with a small body: the handler then has a handle of the stream and can migrate it.
    Post,
}

/// One big transfer.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) part: Part,
    pub(crate) framing: Framing,
    pub(crate) asking: Asking,
    /// Whether the server sends the response's header section before it has received the upload.
    pub(crate) early_head: bool,
    /// Offsets at which the server's handler requests a migration.
    pub(crate) server_moves: Vec<u64>,
    /// Offsets at which the client requests a migration.
    pub(crate) client_moves: Vec<u64>,
    /// Offset at which the client cancels it.
    pub(crate) cancel_at: Option<u64>,
    /// Seed for the sizes of the body's chunks.
    pub(crate) pieces: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) server_moves: ServerMoves,
    pub(crate) client_moves: ClientMoves,
    pub(crate) spares: usize,
    /// Maximum number of migrations of one stream that each side tolerates.
    pub(crate) max_moves: u8,
    /// Receive window of a stream at both ends.
    pub(crate) stream_window: u32,
    pub(crate) troubles: Vec<Planned>,
    pub(crate) download: Transfer,
    pub(crate) upload: Transfer,
}

impl Plan {
    /// Generates the plan of a run with big transfers of `size` bytes.
    pub(crate) fn throw(dice: &mut Rng, size: u64) -> Self {
        let server_moves = match dice.within(0..10) {
            0..6 => ServerMoves::Asked,
            6..9 => ServerMoves::At(offsets(dice, size)),
            _ => ServerMoves::Policy,
        };
        let client_moves = match dice.within(0..10) {
            0..4 => ClientMoves::Nobody,
            4..9 => ClientMoves::At(offsets(dice, size)),
            _ => ClientMoves::Policy,
        };
        let download = Transfer::throw(dice, size);
        let upload = Transfer::throw(dice, size);
        let mut troubles = delays(dice, size);
        if dice.percent(50) {
            troubles.extend(kills(dice, size));
        }
        Self {
            server_moves,
            client_moves,
            spares: dice.within(1..4) as usize,
            max_moves: dice.one_of(4, &[1, 4, 8, 16]),
            stream_window: dice.one_of(1 << 20, &[64 << 10, 256 << 10, 8 << 20]),
            troubles,
            download,
            upload,
        }
    }

    /// Returns the number of connections to kill.
    #[cfg(test)]
    fn kills(&self) -> usize {
        self.troubles.iter().filter(|planned| planned.trouble.kills()).count()
    }
}

impl Transfer {
    fn throw(dice: &mut Rng, size: u64) -> Self {
        Self {
            part: Part { place: dice.within(0..PLACES), len: size },
            framing: dice.one_of(Framing::Announced, &[Framing::Open, Framing::Trailers]),
            asking: dice.one_of(Asking::Post, &[Asking::Post, Asking::Get, Asking::Hinted]),
            early_head: dice.percent(50),
            server_moves: offsets(dice, size),
            client_moves: offsets(dice, size),
            cancel_at: dice.percent(8).then(|| dice.within(0..size)),
            pieces: dice.next(),
        }
    }
}

/// Returns up to six offsets; a quarter of the lists lies within the first 256 KiB.
fn offsets(dice: &mut Rng, size: u64) -> Vec<u64> {
    let count = dice.within(0..7);
    let range = match dice.within(0..4) {
        0 => 0..(256 << 10).min(size),
        _ => 0..size,
    };
    dice.offsets(count, &range)
}

fn place(dice: &mut Rng, size: u64) -> (usize, RelayDirection, u64) {
    let line = dice.within(0..4) as usize;
    let way = dice.one_of(RelayDirection::Up, &[RelayDirection::Down]);
    let at = match dice.within(0..8) {
        // The handshakes, the join, the first requests.
        0..2 => dice.within(0..6000),
        2..4 => dice.within(0..(512 << 10).min(size)),
        4..6 => dice.within(0..size / 4),
        _ => dice.within(0..size),
    };
    (line, way, at)
}

fn delays(dice: &mut Rng, size: u64) -> Vec<Planned> {
    let count = dice.within(0..4);
    let delays = (0..count).map(|_| {
        let (line, way, at) = place(dice, size);
        let trouble = if dice.percent(50) {
            RelayFault::Stall(Duration::from_millis(dice.within(5..300)))
        } else {
            RelayFault::Slow(dice.within(0..(4 << 20).min(size)))
        };
        Planned { line, way, at, trouble }
    });
    delays.collect()
}

fn kills(dice: &mut Rng, size: u64) -> Vec<Planned> {
    let count = dice.within(1..4);
    let kills = (0..count).map(|_| {
        let (line, way, at) = place(dice, size);
        let trouble = dice.one_of(RelayFault::Reset, &[RelayFault::Fin]);
        Planned { line, way, at, trouble }
    });
    kills.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_plan() {
        let plan = |run| format!("{:?}", Plan::throw(&mut Rng::of_run(7, run), 1 << 20));
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn about_half_of_the_runs_kill() {
        let killing = (0..1000)
            .filter(|&run| Plan::throw(&mut Rng::of_run(1, run), 1 << 20).kills() > 0)
            .count();
        assert!((400..600).contains(&killing), "{killing}");
    }
}
