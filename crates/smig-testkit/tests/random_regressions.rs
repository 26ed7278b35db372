//! Shrunk sequences that once failed. Each was verified to fail without its fix.

use smig_testkit::mesh::MigrateTo::{Link, Offer, Spare};
use smig_testkit::mesh::Op::{
    Connect, Cut, Deliver, Drain, Exchange, Migrate, Open, Release, Settle, Shutdown, Sleep,
    Transmit, Write,
};
use smig_testkit::mesh::Side::{Client, Server};
use smig_testkit::mesh::{Flow, Kind, Op, Plan, Setup, replay};

const ALL: u32 = 1 << 20;

/// A short download on any connection.
const GET: Op = Open { on: None, plan: Plan::download(9) };

fn passes(setup: Setup, ops: &[Op]) {
    if let Err(fault) = replay(setup, ops) {
        panic!("{fault}");
    }
}

fn seed(seed: u64) -> Setup {
    Setup { seed, ..Setup::default() }
}

fn tunnel(up: u32, down: u32) -> Plan {
    let flow = |length| Flow { announced: false, ..Flow::plain(length) };
    Plan { kind: Kind::Connect, up: flow(up), down: flow(down), ..Plan::download(0) }
}

#[test]
fn a_request_waits_for_the_join_of_its_connection() {
    // The JOIN was sent after the request (SMIG-4.2/join-first).
    let request = Open { on: Some(2), plan: Plan::upload(19_966, 2648) };
    passes(seed(1), &[Exchange { link: 1 }, Connect, Connect, request]);
}

#[test]
fn a_stream_that_comes_back_after_a_decline_goes_on() {
    passes(
        Setup { server_moves: 0, socket: 20_000, ..seed(1) },
        &[
            Exchange { link: 0 },
            Connect,
            Exchange { link: 1 },
            Open { on: None, plan: Plan { padding: 20_000, ..tunnel(2, 41) } },
            Migrate { talk: 11, side: Client, to: Spare },
        ],
    );
}

#[test]
fn a_request_may_stand_below_a_carrier_that_overtook_it() {
    // SMIG-5.26/skipped-ids: the MIGRATE on one connection named an id above that of a request in
    // flight on the other.
    passes(
        seed(17_138_351_626_396_593_383),
        &[
            Exchange { link: 4 },
            Connect,
            GET,
            Exchange { link: 5 },
            Open { on: Some(5), plan: Plan::download(9) },
            Migrate { talk: 10, side: Client, to: Link(5) },
        ],
    );
}

#[test]
fn a_server_that_moved_a_stream_which_is_over_ignores_the_clients_move_of_it() {
    // SMIG-6.5/server-wins: the server declined.
    passes(
        seed(1),
        &[
            Exchange { link: 1 },
            Connect,
            GET,
            Connect,
            Connect,
            GET,
            Settle,
            Open { on: None, plan: Plan { padding: 20_000, ..tunnel(14, 619) } },
            Migrate { talk: 3, side: Server, to: Link(2) },
            Migrate { talk: 11, side: Client, to: Spare },
            GET,
            Sleep { millis: 61_000 },
            Migrate { talk: 9, side: Client, to: Link(3) },
        ],
    );
}

#[test]
fn two_joins_that_find_no_session_are_both_answered() {
    // SMIG-4.8/new-session: the client had discarded the state of its JOIN when the second answer
    // arrived.
    passes(
        seed(11_985_288_538_251_083_819),
        &[Exchange { link: 5 }, Connect, Connect, Cut { link: 0, keep: [0, 0] }, Connect],
    );
}

#[test]
fn a_migrate_that_waits_behind_an_answer_is_declined_when_the_stream_ends() {
    // SMIG-5.10/always-answer: it was dropped with the stream.
    passes(
        seed(1),
        &[
            Exchange { link: 0 },
            Connect,
            Exchange { link: 1 },
            GET,
            Migrate { talk: 11, side: Client, to: Link(3) },
            Transmit { link: 4, side: Client, bytes: ALL },
            Deliver { link: 0, to: Server, bytes: ALL },
            Migrate { talk: 3, side: Server, to: Spare },
            Exchange { link: 1 },
            Sleep { millis: 31_000 },
        ],
    );
}

#[test]
fn a_migrate_that_waits_is_declined_when_a_complete_mover_loses_the_old_connection() {
    // SMIG-8.8/c1-ends-at-mover, SMIG-5.10/always-answer: it was dropped with the stream.
    passes(
        seed(14_774_561_190_097_929_780),
        &[
            Exchange { link: 0 },
            Connect,
            GET,
            Exchange { link: 1 },
            GET,
            GET,
            Migrate { talk: 2, side: Client, to: Link(3) },
            GET,
            GET,
            Exchange { link: 0 },
            Connect,
            Migrate { talk: 7, side: Server, to: Link(0) },
            Write { talk: 2, side: Server, bytes: 154 },
            Cut { link: 2, keep: [0, 0] },
            Connect,
            Deliver { link: 2, to: Client, bytes: ALL },
            Exchange { link: 1 },
            GET,
            Connect,
            Migrate { talk: 8, side: Client, to: Link(1) },
            Cut { link: 1, keep: [0, 0] },
        ],
    );
}

#[test]
fn goaway_ends_the_unbound_carriers_that_it_excludes() {
    // SMIG-8.16/bound-is-processed: the reset of such a carrier was ignored, and the carrier
    // remained until its timeout.
    let ops = [
        Exchange { link: 0 },
        Connect,
        Exchange { link: 1 },
        Exchange { link: 1 },
        Open { on: Some(1), plan: Plan { prompt: false, ..Plan::download(9) } },
        Exchange { link: 1 },
        Migrate { talk: 0, side: Server, to: Link(0) },
        Write { talk: 0, side: Server, bytes: 3 },
        Transmit { link: 0, side: Server, bytes: ALL },
        Deliver { link: 0, to: Client, bytes: ALL },
        Drain { link: 0, side: Client },
        Exchange { link: 0 },
        Exchange { link: 0 },
        Cut { link: 1, keep: [0, 0] },
    ];
    let seen = replay(seed(1), &ops).unwrap();
    assert!(seen.contains(&"frames before their barrier"), "{seen:?}");
    assert!(!seen.contains(&"unbound carrier left"), "{seen:?}");
}

#[test]
fn a_connection_that_joins_a_session_which_is_ending_is_closed() {
    passes(seed(1), &[Shutdown { side: Server }, Exchange { link: 4 }, Connect]);
}

#[test]
fn a_head_that_is_sent_again_does_not_start_the_count_of_its_body_again() {
    // SMIG-6.8/resume: the body then seemed too short for its content-length.
    passes(
        Setup { client_moves: 0, ..seed(1) },
        &[
            GET,
            Open { on: None, plan: Plan { prompt: false, ..Plan::download(9) } },
            GET,
            Settle,
            GET,
            GET,
            Connect,
            Exchange { link: 5 },
            GET,
            GET,
            GET,
            Migrate { talk: 1, side: Server, to: Spare },
            GET,
            Write { talk: 10, side: Server, bytes: 1 },
            Settle,
        ],
    );
}

#[test]
fn an_initial_window_applies_to_the_direction_whose_barrier_has_not_come() {
    // SMIG-7.4/initial-window: the mover assumed that the peer's direction had migrated with its
    // own.
    passes(
        Setup { server_window: 700, ..seed(1) },
        &[
            Exchange { link: 5 },
            Connect,
            Connect,
            Open { on: Some(2), plan: Plan::upload(964, 7617) },
            Connect,
            Exchange { link: 2 },
            Migrate { talk: 11, side: Server, to: Link(4) },
        ],
    );
}

#[test]
fn credit_that_a_smaller_initial_window_makes_due_is_announced() {
    // Credit that was too small to be announced with the default window exceeded the whole new one.
    passes(
        Setup { server_window: 700, ..seed(9_870_699_158_979_181_695) },
        &[
            Open { on: None, plan: Plan::upload(8331, 2) },
            Write { talk: 8, side: Client, bytes: 2748 },
            Exchange { link: 2 },
        ],
    );
}

#[test]
fn a_first_connection_is_joined_before_its_key_is_there() {
    // SMIG-3.6/founding: an offer immediately after the server's SETTINGS was an error.
    passes(
        seed(1),
        &[
            Open { on: None, plan: Plan::upload(193, 9) },
            Transmit { link: 3, side: Client, bytes: ALL },
            Deliver { link: 3, to: Server, bytes: ALL },
            Migrate { talk: 11, side: Server, to: Offer },
        ],
    );
}

#[test]
fn a_whole_response_is_not_lost_with_the_rest_of_its_request() {
    // RFC 9113 section 8.1: RST_STREAM(NO_ERROR) after a response.
    let answered = Open { on: None, plan: Plan::upload(18, 0) };
    passes(seed(1), &[answered, Settle, Release { talk: 5, side: Server }]);
}

#[test]
fn a_mover_is_not_accused_for_a_stream_that_was_reset_meanwhile() {
    // SMIG-5.22/unbound-bytes: no stream was left, and so no window that its DATA could have
    // fitted.
    passes(
        seed(1),
        &[
            Exchange { link: 0 },
            Connect,
            Exchange { link: 1 },
            Exchange { link: 1 },
            Open { on: Some(0), plan: Plan { prompt: false, ..Plan::download(9) } },
            Exchange { link: 0 },
            Release { talk: 0, side: Client },
            Migrate { talk: 0, side: Server, to: Link(1) },
            Write { talk: 0, side: Server, bytes: 9 },
            Transmit { link: 1, side: Server, bytes: ALL },
            Deliver { link: 1, to: Client, bytes: ALL },
        ],
    );
}

#[test]
fn a_path_to_a_closed_end_has_room_again() {
    // The test's network deadlocked: data for an end that does not read any more filled it.
    let padded = |plan| Open { on: None, plan: Plan { padding: 20_000, prompt: false, ..plan } };
    passes(
        Setup { socket: 300, max_buffered_output: 500, ..seed(1) },
        &[
            padded(Plan::download(1)),
            Op::Close { link: 3, side: Server },
            Transmit { link: 3, side: Client, bytes: ALL },
            padded(Plan::upload(1, 59)),
            Write { talk: 11, side: Client, bytes: 2 },
        ],
    );
}
