//! The steps of random sequences. Indices are taken modulo the number of objects, so that a sequence stays
//! valid when steps are removed.

use smig_proto::JoinRefusal;

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
    /// The server offers it to the client.
    Offer,
}

/// A step of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the numbers of things, and amounts")]
pub enum Op {
    /// The client opens another connection.
    Connect,
    /// The client sends a request, on a given connection or on one that the engine selects.
    Open { on: Option<u8>, plan: Plan },
    /// An engine writes on a connection.
    Transmit { link: u8, side: Side, bytes: u32 },
    /// Bytes arrive.
    Deliver { link: u8, to: Side, bytes: u32 },
    /// Both engines write, and everything arrives.
    Exchange { link: u8 },
    /// The server's application sends the response's head.
    Respond { talk: u8 },
    /// An application sends part of its body.
    Write { talk: u8, side: Side, bytes: u32 },
    /// An application reads some chunks.
    Read { talk: u8, side: Side, pieces: u8 },
    /// An application stops reading.
    Pause { talk: u8, side: Side },
    /// The server's application sends its complete response and needs no more of the request.
    Stop { talk: u8 },
    /// An application resets a stream.
    Reset { talk: u8, side: Side },
    /// An application releases a stream.
    Release { talk: u8, side: Side },
    /// An end migrates a stream.
    Migrate { talk: u8, side: Side, to: MigrateTo },
    /// The client accepts an offer.
    TakeOffer { talk: u8, to: MigrateTo },
    /// The client declines an offer.
    DeclineOffer { talk: u8 },
    /// The server promises a response.
    Push { talk: u8, plan: Plan },
    /// An end changes a priority.
    Reprioritize { talk: u8, side: Side, urgency: u8 },
    /// An end sends PING.
    Ping { link: u8, side: Side },
    /// An end drains a connection.
    Drain { link: u8, side: Side },
    /// An end shuts its session down gracefully.
    Shutdown { side: Side },
    /// An end closes a connection at once.
    Close { link: u8, side: Side },
    /// A connection fails; the given thousandths of the bytes in flight still arrive.
    Cut { link: u8, keep: [u16; 2] },
    /// The next JOIN is refused.
    RefuseJoin(JoinRefusal),
    /// Time passes.
    Sleep { millis: u32 },
    /// Everything in flight arrives, and the applications read and write all they can.
    Settle,
}

/// The mixture of steps in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpMix {
    /// Transfers and migrations, without early ends.
    Calm,
    /// Mainly migrations.
    Migrating,
    /// Everything: resets, failures, long pauses.
    Rough,
}

impl Op {
    fn random(rng: &mut Rng, temper: OpMix) -> Self {
        let side = rng.pick(&Side::BOTH);
        let link = rng.below(6) as u8;
        let talk = rng.below(12) as u8;
        let trouble = match temper {
            OpMix::Calm => 0,
            OpMix::Migrating => 8,
            OpMix::Rough => 50,
        };
        if rng.below(1000) < trouble {
            return Self::random_end(rng, link, talk, side);
        }
        if temper == OpMix::Migrating && rng.chance(30) {
            return Self::random_move(rng, talk, side);
        }
        match rng.below(1000) {
            0..50 => Self::Connect,
            50..150 => Self::Open { on: rng.chance(30).then_some(link), plan: Plan::random(rng) },
            150..340 => Self::Transmit { link, side, bytes: amount(rng) },
            340..540 => Self::Deliver { link, to: side, bytes: amount(rng) },
            540..610 => Self::Exchange { link },
            610..630 => Self::Respond { talk },
            630..710 => Self::Write { talk, side, bytes: rng.length(40_000) },
            710..770 => Self::Read { talk, side, pieces: 1 + rng.below(6) as u8 },
            770..920 => Self::random_move(rng, talk, side),
            920..935 => Self::Push { talk, plan: Plan::random_push(rng) },
            935..945 => Self::Reprioritize { talk, side, urgency: rng.below(8) as u8 },
            945..955 => Self::Pause { talk, side },
            955..965 if temper == OpMix::Calm => Self::Pause { talk, side },
            955..965 => Self::Stop { talk },
            965..985 => Self::Settle,
            985..990 => Self::Ping { link, side },
            _ => Self::Sleep { millis: rng.pick(&[10, 500, 1500]) },
        }
    }

    fn random_move(rng: &mut Rng, talk: u8, side: Side) -> Self {
        let to = match rng.below(10) {
            0..4 => MigrateTo::Spare,
            4..9 => MigrateTo::Link(rng.below(6) as u8),
            _ => MigrateTo::Offer,
        };
        match rng.below(12) {
            0 => Self::TakeOffer { talk, to },
            1 => Self::DeclineOffer { talk },
            2 => Self::Migrate { talk, side: Side::Server, to: MigrateTo::Offer },
            _ => Self::Migrate { talk, side, to },
        }
    }

    fn random_end(rng: &mut Rng, link: u8, talk: u8, side: Side) -> Self {
        match rng.below(40) {
            0..7 => Self::Reset { talk, side },
            7..14 => Self::Release { talk, side },
            14..19 => Self::Drain { link, side },
            19..20 => Self::Shutdown { side },
            20..23 => Self::Close { link, side },
            23 => Self::RefuseJoin(JoinRefusal::NotHere),
            24 => Self::RefuseJoin(JoinRefusal::UnknownSession),
            25..31 => Self::Sleep { millis: rng.pick(&[6000, 11_000, 31_000, 61_000]) },
            _ => {
                let mut keep = || {
                    let part = rng.below(1000) as u16;
                    rng.pick(&[0, 1000, part])
                };
                Self::Cut { link, keep: [keep(), keep()] }
            }
        }
    }
}

fn amount(rng: &mut Rng) -> u32 {
    match rng.below(10) {
        0 => 1 + rng.below(40),
        1..4 => 1 + rng.length(20_000),
        _ => 1 << 20,
    }
}

/// Returns a random sequence.
pub fn sequence(rng: &mut Rng) -> Vec<Op> {
    let length = rng.pick(&[60, 150, 300, 600]);
    // Most sequences need a second connection and a stream to migrate.
    let mut ops = vec![Op::Exchange { link: 0 }, Op::Exchange { link: 0 }];
    if rng.chance(90) {
        ops.extend([Op::Connect, Op::Exchange { link: 1 }]);
        if rng.chance(80) {
            ops.push(Op::Exchange { link: 1 });
        }
    }
    let temper = rng.pick(&[OpMix::Calm, OpMix::Migrating, OpMix::Migrating, OpMix::Rough]);
    ops.extend((0..length).map(|_| Op::random(rng, temper)));
    ops
}
