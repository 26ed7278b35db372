//! The steps of random sequences. Indices are taken modulo the number of objects, so that a sequence stays
//! valid when steps are removed.

use smig_proto::{BulkHint, JoinRefusal};

use crate::mesh::link::Side;
use crate::mesh::plan::Plan;
use crate::mesh::rng::Rng;

/// The destination of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrateTo {
    /// The spare with the smallest CID.
    Spare,
    /// A given connection.
    Link(u8),
    /// None: the server offers the stream to the client, which chooses one.
    Offer,
}

/// A step of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are indices and amounts")]
pub enum Op {
    /// The client opens another connection.
    Connect,
    /// The client sends a request, on a given connection or on one that the engine selects.
    Open { on: Option<u8>, plan: Plan },
    /// An engine writes on a connection.
    Transmit { link: u8, side: Side, bytes: u32 },
    /// An engine writes on a connection, but no bulk.
    TransmitInteractive { link: u8, side: Side, bytes: u32 },
    /// Bytes arrive.
    Deliver { link: u8, to: Side, bytes: u32 },
    /// Both engines write, and everything arrives.
    Flush { link: u8 },
    /// The server's application sends the response's head.
    Respond { exchange: u8 },
    /// An application sends part of its body.
    Write { exchange: u8, side: Side, bytes: u32 },
    /// An application reads some chunks.
    Read { exchange: u8, side: Side, chunks: u8 },
    /// An application stops reading.
    Pause { exchange: u8, side: Side },
    /// The server's application sends its complete response and needs no more of the request.
    StopUpload { exchange: u8 },
    /// An application resets a stream.
    Reset { exchange: u8, side: Side },
    /// An application releases a stream.
    Release { exchange: u8, side: Side },
    /// An end migrates a stream.
    Migrate { exchange: u8, side: Side, to: MigrateTo },
    /// The client pulls a stream to another connection.
    Pull { exchange: u8, to: u8 },
    /// The client accepts an offer.
    AcceptOffer { exchange: u8, to: MigrateTo },
    /// The client declines an offer.
    DeclineOffer { exchange: u8 },
    /// The server promises a response.
    Push { exchange: u8, plan: Plan },
    /// An end changes a priority.
    Reprioritize { exchange: u8, side: Side, urgency: u8 },
    /// An end decides whether what it sends is bulk.
    SetBulkHint { exchange: u8, side: Side, hint: BulkHint },
    /// An end sends PING.
    Ping { link: u8, side: Side },
    /// An end drains a connection.
    Drain { link: u8, side: Side },
    /// An end shuts its session down gracefully.
    Shutdown { side: Side },
    /// An end closes a connection at once.
    Close { link: u8, side: Side },
    /// A connection fails; the given thousandths of the bytes in flight still arrive.
    Cut { link: u8, delivered_permille: [u16; 2] },
    /// The next JOIN is refused.
    RefuseJoin(JoinRefusal),
    /// Time passes.
    Sleep { millis: u32 },
    /// Everything in flight arrives, and the applications that are not paused read all they can; they write nothing.
    Settle,
}

/// The mixture of steps in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpMix {
    /// Transfers and migrations, without early ends.
    Calm,
    /// Many migrations, and a few early ends.
    Migrating,
    /// Everything: resets, failures, long pauses.
    Rough,
}

impl Op {
    fn random(rng: &mut Rng, mix: OpMix) -> Self {
        let side = rng.pick(&Side::BOTH);
        let link = rng.below(6) as u8;
        let exchange = rng.below(12) as u8;
        let failure_permille = match mix {
            OpMix::Calm => 0,
            OpMix::Migrating => 8,
            OpMix::Rough => 50,
        };
        if rng.below(1000) < failure_permille {
            return Self::random_failure(rng, link, exchange, side);
        }
        if mix == OpMix::Migrating && rng.chance(30) {
            return Self::random_migration(rng, exchange, side);
        }
        match rng.below(1000) {
            0..50 => Self::Connect,
            50..150 => Self::Open { on: rng.chance(30).then_some(link), plan: Plan::random(rng) },
            150..310 => Self::Transmit { link, side, bytes: random_byte_count(rng) },
            310..340 => Self::TransmitInteractive { link, side, bytes: random_byte_count(rng) },
            340..540 => Self::Deliver { link, to: side, bytes: random_byte_count(rng) },
            540..610 => Self::Flush { link },
            610..630 => Self::Respond { exchange },
            630..710 => Self::Write { exchange, side, bytes: rng.log_uniform(40_000) },
            710..770 => Self::Read { exchange, side, chunks: 1 + rng.below(6) as u8 },
            770..920 => Self::random_migration(rng, exchange, side),
            920..935 => Self::Push { exchange, plan: Plan::random_push(rng) },
            935..945 => Self::Reprioritize { exchange, side, urgency: rng.below(8) as u8 },
            945..955 => Self::Pause { exchange, side },
            955..965 if mix == OpMix::Calm => Self::Pause { exchange, side },
            955..965 => Self::StopUpload { exchange },
            965..985 => Self::Settle,
            985..988 => Self::Ping { link, side },
            988..993 => Self::SetBulkHint {
                exchange,
                side,
                hint: rng.pick(&[BulkHint::None, BulkHint::Bulk, BulkHint::Interactive]),
            },
            _ => Self::Sleep { millis: rng.pick(&[10, 500, 1500]) },
        }
    }

    fn random_migration(rng: &mut Rng, exchange: u8, side: Side) -> Self {
        let to = match rng.below(10) {
            0..4 => MigrateTo::Spare,
            4..9 => MigrateTo::Link(rng.below(6) as u8),
            _ => MigrateTo::Offer,
        };
        match rng.below(12) {
            0 => Self::AcceptOffer { exchange, to },
            1 => Self::DeclineOffer { exchange },
            2 => Self::Migrate { exchange, side: Side::Server, to: MigrateTo::Offer },
            3 => Self::Pull { exchange, to: rng.below(6) as u8 },
            _ => Self::Migrate { exchange, side, to },
        }
    }

    fn random_failure(rng: &mut Rng, link: u8, exchange: u8, side: Side) -> Self {
        match rng.below(40) {
            0..7 => Self::Reset { exchange, side },
            7..14 => Self::Release { exchange, side },
            14..19 => Self::Drain { link, side },
            19..20 => Self::Shutdown { side },
            20..23 => Self::Close { link, side },
            23 => Self::RefuseJoin(JoinRefusal::NotHere),
            24 => Self::RefuseJoin(JoinRefusal::UnknownSession),
            25..31 => Self::Sleep { millis: rng.pick(&[6000, 11_000, 31_000, 61_000]) },
            _ => {
                let mut random_permille = || {
                    let permille = rng.below(1000) as u16;
                    rng.pick(&[0, 1000, permille])
                };
                Self::Cut { link, delivered_permille: [random_permille(), random_permille()] }
            }
        }
    }
}

fn random_byte_count(rng: &mut Rng) -> u32 {
    match rng.below(10) {
        0 => 1 + rng.below(40),
        1..4 => 1 + rng.log_uniform(20_000),
        _ => 1 << 20,
    }
}

/// Returns a random sequence.
pub fn random_sequence(rng: &mut Rng) -> Vec<Op> {
    let length = rng.pick(&[60, 150, 300, 600]);
    // Most sequences need a second connection and a stream to migrate.
    let mut ops = vec![Op::Flush { link: 0 }, Op::Flush { link: 0 }];
    if rng.chance(90) {
        ops.extend([Op::Connect, Op::Flush { link: 1 }]);
        if rng.chance(80) {
            ops.push(Op::Flush { link: 1 });
        }
    }
    let mix = rng.pick(&[OpMix::Calm, OpMix::Migrating, OpMix::Migrating, OpMix::Rough]);
    ops.extend((0..length).map(|_| Op::random(rng, mix)));
    ops
}
