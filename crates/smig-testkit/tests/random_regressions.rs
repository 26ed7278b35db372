//! Shrunk sequences that once failed. Each was verified to fail without its fix.

use smig_testkit::mesh::MigrateTo::{Link, Offer, Spare};
use smig_testkit::mesh::Op::{
    Connect, Cut, Deliver, Drain, Flush, Migrate, Open, Release, Settle, Shutdown, Sleep, Transmit,
    Write,
};
use smig_testkit::mesh::Side::{Client, Server};
use smig_testkit::mesh::{BodyPlan, ExchangeKind, Op, Plan, Setup, replay};

const UNLIMITED_BYTES: u32 = 1 << 20;

/// A short download on any connection.
const GET: Op = Open { on: None, plan: Plan::download(9) };

fn expect_pass(setup: Setup, ops: &[Op]) {
    if let Err(violation) = replay(setup, ops) {
        panic!("{violation}");
    }
}

fn setup_with_seed(seed: u64) -> Setup {
    Setup { seed, ..Setup::default() }
}

fn tunnel(up: u32, down: u32) -> Plan {
    let flow = |length| BodyPlan { has_content_length: false, ..BodyPlan::of_length(length) };
    Plan { kind: ExchangeKind::Connect, up: flow(up), down: flow(down), ..Plan::download(0) }
}

#[test]
fn a_request_waits_for_the_join_of_its_connection() {
    // The JOIN was sent after the request (SMIG-4.2/join-first).
    let request = Open { on: Some(2), plan: Plan::upload(19_966, 2648) };
    expect_pass(setup_with_seed(1), &[Flush { link: 1 }, Connect, Connect, request]);
}

#[test]
fn a_declined_stream_continues() {
    expect_pass(
        Setup { server_max_migrations: 0, pipe_capacity: 20_000, ..setup_with_seed(1) },
        &[
            Flush { link: 0 },
            Connect,
            Flush { link: 1 },
            Open { on: None, plan: Plan { padding: 20_000, ..tunnel(2, 41) } },
            Migrate { exchange: 11, side: Client, to: Spare },
        ],
    );
}

#[test]
fn a_request_may_have_a_lower_id_than_a_carrier_that_overtook_it() {
    // SMIG-5.26/skipped-ids: the MIGRATE on one connection named an id above that of a request in
    // flight on the other.
    expect_pass(
        setup_with_seed(17_138_351_626_396_593_383),
        &[
            Flush { link: 4 },
            Connect,
            GET,
            Flush { link: 5 },
            Open { on: Some(5), plan: Plan::download(9) },
            Migrate { exchange: 10, side: Client, to: Link(5) },
        ],
    );
}

#[test]
fn a_server_ignores_a_colliding_migrate_of_an_ended_stream() {
    // SMIG-6.5/server-wins: the server declined.
    expect_pass(
        setup_with_seed(1),
        &[
            Flush { link: 1 },
            Connect,
            GET,
            Connect,
            Connect,
            GET,
            Settle,
            Open { on: None, plan: Plan { padding: 20_000, ..tunnel(14, 619) } },
            Migrate { exchange: 3, side: Server, to: Link(2) },
            Migrate { exchange: 11, side: Client, to: Spare },
            GET,
            Sleep { millis: 61_000 },
            Migrate { exchange: 9, side: Client, to: Link(3) },
        ],
    );
}

#[test]
fn two_joins_that_find_no_session_are_both_answered() {
    // SMIG-4.8/new-session: the client had discarded the state of its JOIN when the second answer
    // arrived.
    expect_pass(
        setup_with_seed(11_985_288_538_251_083_819),
        &[
            Flush { link: 5 },
            Connect,
            Connect,
            Cut { link: 0, delivered_permille: [0, 0] },
            Connect,
        ],
    );
}

#[test]
fn a_deferred_migrate_is_declined_when_the_stream_ends() {
    // SMIG-5.10/always-answer: it was dropped with the stream.
    expect_pass(
        setup_with_seed(1),
        &[
            Flush { link: 0 },
            Connect,
            Flush { link: 1 },
            GET,
            Migrate { exchange: 11, side: Client, to: Link(3) },
            Transmit { link: 4, side: Client, bytes: UNLIMITED_BYTES },
            Deliver { link: 0, to: Server, bytes: UNLIMITED_BYTES },
            Migrate { exchange: 3, side: Server, to: Spare },
            Flush { link: 1 },
            Sleep { millis: 31_000 },
        ],
    );
}

#[test]
fn a_deferred_migrate_is_declined_when_a_complete_mover_loses_c1() {
    // SMIG-8.8/c1-ends-at-mover, SMIG-5.10/always-answer: it was dropped with the stream.
    expect_pass(
        setup_with_seed(14_774_561_190_097_929_780),
        &[
            Flush { link: 0 },
            Connect,
            GET,
            Flush { link: 1 },
            GET,
            GET,
            Migrate { exchange: 2, side: Client, to: Link(3) },
            GET,
            GET,
            Flush { link: 0 },
            Connect,
            Migrate { exchange: 7, side: Server, to: Link(0) },
            Write { exchange: 2, side: Server, bytes: 154 },
            Cut { link: 2, delivered_permille: [0, 0] },
            Connect,
            Deliver { link: 2, to: Client, bytes: UNLIMITED_BYTES },
            Flush { link: 1 },
            GET,
            Connect,
            Migrate { exchange: 8, side: Client, to: Link(1) },
            Cut { link: 1, delivered_permille: [0, 0] },
        ],
    );
}

#[test]
fn goaway_ends_the_unbound_carriers_that_it_excludes() {
    // SMIG-8.16/bound-is-processed: the reset of such a carrier was ignored, and the carrier
    // remained until its timeout.
    let ops = [
        Flush { link: 0 },
        Connect,
        Flush { link: 1 },
        Flush { link: 1 },
        Open { on: Some(1), plan: Plan { responds_at_once: false, ..Plan::download(9) } },
        Flush { link: 1 },
        Migrate { exchange: 0, side: Server, to: Link(0) },
        Write { exchange: 0, side: Server, bytes: 3 },
        Transmit { link: 0, side: Server, bytes: UNLIMITED_BYTES },
        Deliver { link: 0, to: Client, bytes: UNLIMITED_BYTES },
        Drain { link: 0, side: Client },
        Flush { link: 0 },
        Flush { link: 0 },
        Cut { link: 1, delivered_permille: [0, 0] },
    ];
    let seen = replay(setup_with_seed(1), &ops).unwrap();
    assert!(seen.contains(&"frames before their barrier"), "{seen:?}");
    assert!(!seen.contains(&"unbound carrier left"), "{seen:?}");
}

#[test]
fn a_connection_that_joins_an_ending_session_is_closed() {
    expect_pass(setup_with_seed(1), &[Shutdown { side: Server }, Flush { link: 4 }, Connect]);
}

#[test]
fn a_replayed_head_does_not_restart_the_body_count() {
    // SMIG-6.8/resume: the body then seemed too short for its content-length.
    expect_pass(
        Setup { client_max_migrations: 0, ..setup_with_seed(1) },
        &[
            GET,
            Open { on: None, plan: Plan { responds_at_once: false, ..Plan::download(9) } },
            GET,
            Settle,
            GET,
            GET,
            Connect,
            Flush { link: 5 },
            GET,
            GET,
            GET,
            Migrate { exchange: 1, side: Server, to: Spare },
            GET,
            Write { exchange: 10, side: Server, bytes: 1 },
            Settle,
        ],
    );
}

#[test]
fn an_initial_window_applies_until_the_directions_barrier() {
    // SMIG-7.4/initial-window: the mover assumed that the peer's direction had migrated with its
    // own.
    expect_pass(
        Setup { server_window: 700, ..setup_with_seed(1) },
        &[
            Flush { link: 5 },
            Connect,
            Connect,
            Open { on: Some(2), plan: Plan::upload(964, 7617) },
            Connect,
            Flush { link: 2 },
            Migrate { exchange: 11, side: Server, to: Link(4) },
        ],
    );
}

#[test]
fn credit_that_a_smaller_initial_window_makes_due_is_announced() {
    // Credit that was too small to be announced with the default window exceeded the whole new one.
    expect_pass(
        Setup { server_window: 700, ..setup_with_seed(9_870_699_158_979_181_695) },
        &[
            Open { on: None, plan: Plan::upload(8331, 2) },
            Write { exchange: 8, side: Client, bytes: 2748 },
            Flush { link: 2 },
        ],
    );
}

#[test]
fn the_first_connection_is_joined_before_its_key_is_known() {
    // SMIG-3.6/founding: an offer immediately after the server's SETTINGS was an error.
    expect_pass(
        setup_with_seed(1),
        &[
            Open { on: None, plan: Plan::upload(193, 9) },
            Transmit { link: 3, side: Client, bytes: UNLIMITED_BYTES },
            Deliver { link: 3, to: Server, bytes: UNLIMITED_BYTES },
            Migrate { exchange: 11, side: Server, to: Offer },
        ],
    );
}

#[test]
fn a_complete_response_survives_the_stop_of_its_upload() {
    // RFC 9113 section 8.1: RST_STREAM(NO_ERROR) after a response.
    let answered = Open { on: None, plan: Plan::upload(18, 0) };
    expect_pass(setup_with_seed(1), &[answered, Settle, Release { exchange: 5, side: Server }]);
}

#[test]
fn data_for_a_stream_that_was_reset_meanwhile_is_no_error() {
    // SMIG-5.22/unbound-bytes: no stream was left, and so no window that its DATA could have
    // fitted.
    expect_pass(
        setup_with_seed(1),
        &[
            Flush { link: 0 },
            Connect,
            Flush { link: 1 },
            Flush { link: 1 },
            Open { on: Some(0), plan: Plan { responds_at_once: false, ..Plan::download(9) } },
            Flush { link: 0 },
            Release { exchange: 0, side: Client },
            Migrate { exchange: 0, side: Server, to: Link(1) },
            Write { exchange: 0, side: Server, bytes: 9 },
            Transmit { link: 1, side: Server, bytes: UNLIMITED_BYTES },
            Deliver { link: 1, to: Client, bytes: UNLIMITED_BYTES },
        ],
    );
}

#[test]
fn a_pipe_to_a_closed_end_is_drained() {
    // The test's network deadlocked: data for an end that does not read any more filled it.
    let open_padded =
        |plan| Open { on: None, plan: Plan { padding: 20_000, responds_at_once: false, ..plan } };
    expect_pass(
        Setup { pipe_capacity: 300, max_buffered_output: 500, ..setup_with_seed(1) },
        &[
            open_padded(Plan::download(1)),
            Op::Close { link: 3, side: Server },
            Transmit { link: 3, side: Client, bytes: UNLIMITED_BYTES },
            open_padded(Plan::upload(1, 59)),
            Write { exchange: 11, side: Client, bytes: 2 },
        ],
    );
}
