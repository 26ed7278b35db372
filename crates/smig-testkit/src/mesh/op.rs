//! What may happen next: the alphabet of random sequences. Numbers name things modulo how many there
//! are, so that a sequence stays valid when a part of it is left out.

use smig_proto::JoinRefusal;

use crate::mesh::link::Side;
use crate::mesh::plan::Plan;
use crate::mesh::rng::Rng;

/// Where a stream is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whither {
    /// The spare with the smallest CID.
    Spare,
    /// This connection.
    Link(u8),
    /// The server offers it to the client.
    Offer,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are the numbers of things, and amounts")]
pub enum Op {
    /// The client opens a further connection.
    Connect,
    /// The client sends a request, on a connection or where the engine likes.
    Open { on: Option<u8>, plan: Plan },
    /// An engine writes to a connection.
    Transmit { link: u8, side: Side, octets: u32 },
    /// Octets arrive.
    Deliver { link: u8, to: Side, octets: u32 },
    /// Both engines write, and all of it arrives.
    Exchange { link: u8 },
    /// The server's application sends the response's head.
    Respond { talk: u8 },
    /// An application sends a part of its body.
    Write { talk: u8, side: Side, octets: u32 },
    /// An application reads some pieces.
    Read { talk: u8, side: Side, pieces: u8 },
    /// An application stops to read.
    Pause { talk: u8, side: Side },
    /// The server's application answers all, and wants no more of the request.
    Stop { talk: u8 },
    /// An application resets a stream.
    Reset { talk: u8, side: Side },
    /// An application lets go of a stream.
    Release { talk: u8, side: Side },
    /// An end moves a stream.
    Migrate { talk: u8, side: Side, to: Whither },
    /// The client follows an offer.
    TakeOffer { talk: u8, to: Whither },
    /// The client declines an offer.
    DeclineOffer { talk: u8 },
    /// The server promises a response.
    Push { talk: u8, plan: Plan },
    /// An end changes a priority.
    Reprioritize { talk: u8, side: Side, urgency: u8 },
    /// An end sends PING.
    Ping { link: u8, side: Side },
    /// An end ends a connection in order.
    Drain { link: u8, side: Side },
    /// An end ends its session in order.
    Shutdown { side: Side },
    /// An end closes a connection at once.
    Close { link: u8, side: Side },
    /// A connection fails; so many thousandths of what is under way still arrive.
    Cut { link: u8, keep: [u16; 2] },
    /// The next JOIN is refused.
    RefuseJoin(JoinRefusal),
    /// Time passes.
    Sleep { millis: u32 },
    /// All that is under way arrives, and applications do all that they can.
    Settle,
}

/// What a sequence is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temper {
    /// Transfers and moves, and nothing ends early.
    Calm,
    /// Moves above all.
    Restless,
    /// Everything: resets, failures, long silence.
    Rough,
}

impl Op {
    fn random(rng: &mut Rng, temper: Temper) -> Self {
        let side = rng.pick(&Side::BOTH);
        let link = rng.below(6) as u8;
        let talk = rng.below(12) as u8;
        let trouble = match temper {
            Temper::Calm => 0,
            Temper::Restless => 8,
            Temper::Rough => 50,
        };
        if rng.below(1000) < trouble {
            return Self::random_end(rng, link, talk, side);
        }
        if temper == Temper::Restless && rng.chance(30) {
            return Self::random_move(rng, talk, side);
        }
        match rng.below(1000) {
            0..50 => Self::Connect,
            50..150 => Self::Open { on: rng.chance(30).then_some(link), plan: Plan::random(rng) },
            150..340 => Self::Transmit { link, side, octets: amount(rng) },
            340..540 => Self::Deliver { link, to: side, octets: amount(rng) },
            540..610 => Self::Exchange { link },
            610..630 => Self::Respond { talk },
            630..710 => Self::Write { talk, side, octets: rng.length(40_000) },
            710..770 => Self::Read { talk, side, pieces: 1 + rng.below(6) as u8 },
            770..920 => Self::random_move(rng, talk, side),
            920..935 => Self::Push { talk, plan: Plan::random_push(rng) },
            935..945 => Self::Reprioritize { talk, side, urgency: rng.below(8) as u8 },
            945..955 => Self::Pause { talk, side },
            955..965 if temper == Temper::Calm => Self::Pause { talk, side },
            955..965 => Self::Stop { talk },
            965..985 => Self::Settle,
            985..990 => Self::Ping { link, side },
            _ => Self::Sleep { millis: rng.pick(&[10, 500, 1500]) },
        }
    }

    fn random_move(rng: &mut Rng, talk: u8, side: Side) -> Self {
        let to = match rng.below(10) {
            0..4 => Whither::Spare,
            4..9 => Whither::Link(rng.below(6) as u8),
            _ => Whither::Offer,
        };
        match rng.below(12) {
            0 => Self::TakeOffer { talk, to },
            1 => Self::DeclineOffer { talk },
            2 => Self::Migrate { talk, side: Side::Server, to: Whither::Offer },
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

/// A random sequence.
pub fn sequence(rng: &mut Rng) -> Vec<Op> {
    let length = rng.pick(&[60, 150, 300, 600]);
    // Most sequences need a second connection and something to move.
    let mut ops = vec![Op::Exchange { link: 0 }, Op::Exchange { link: 0 }];
    if rng.chance(90) {
        ops.extend([Op::Connect, Op::Exchange { link: 1 }]);
        if rng.chance(80) {
            ops.push(Op::Exchange { link: 1 });
        }
    }
    let temper = rng.pick(&[Temper::Calm, Temper::Restless, Temper::Restless, Temper::Rough]);
    ops.extend((0..length).map(|_| Op::random(rng, temper)));
    ops
}
