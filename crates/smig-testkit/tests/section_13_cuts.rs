//! Resumption (spec/resumption.md): a connection is cut at every byte, and no stream notices.
//!
//! The reference model of the mesh checks each byte, that no request arrives twice, and that nothing is left.

use smig_testkit::mesh::MigrateTo::{Link, Spare};
use smig_testkit::mesh::Op::{Connect, Flush, Migrate, Open, Write};
use smig_testkit::mesh::Side::{Client, Server};
use smig_testkit::mesh::{BodyPlan, ExchangeKind, Op, Plan, Setup, Side, World};

const fn setup() -> Setup {
    Setup { linger_s: 30, ..Setup::DEFAULT }
}

fn tunnel(up: u32, down: u32) -> Plan {
    let flow = |length| BodyPlan { has_content_length: false, ..BodyPlan::of_length(length) };
    Plan { kind: ExchangeKind::Connect, up: flow(up), down: flow(down), ..Plan::download(0) }
}

fn with_trailers(plan: Plan) -> Plan {
    let trailers = |body: BodyPlan| BodyPlan { has_trailers: true, ..body };
    let has_body = plan.kind == ExchangeKind::Post;
    let up = if has_body { trailers(plan.up) } else { plan.up };
    Plan { up, down: trailers(plan.down), ..plan }
}

const fn open(plan: Plan) -> Op {
    Open { on: Some(0), plan }
}

/// Two connections that have joined, of which the first is to carry everything.
fn connected() -> Vec<Op> {
    [vec![Flush { link: 0 }; 3], vec![Connect], vec![Flush { link: 1 }; 3]].concat()
}

/// Runs the steps and everything that follows, with a cut after `bytes` bytes from `from`. Returns whether there
/// was one.
fn run(ops: &[Op], link: usize, from: Side, bytes: usize) -> bool {
    let mut world = World::new(setup());
    ops.iter().for_each(|&op| world.apply(op));
    world.cut_after(link, from, bytes);
    world.finish();
    let cut = world.is_cut(link);
    world.expect_all_complete(&format!("cut of {link} after {bytes} bytes from {from:?}"));
    cut
}

/// Cuts a connection after each number of bytes from each end.
fn cut_everywhere(ops: &[Op], link: usize) {
    for from in [Client, Server] {
        let mut bytes = 0;
        while run(ops, link, from, bytes) {
            bytes += 1;
            assert!(bytes < 20_000, "the connection never carries everything");
        }
        assert!(bytes > 10, "only {bytes} bytes came from {from:?}");
    }
}

#[test]
fn downloads_go_on_wherever_their_connection_is_cut() {
    let ops =
        [connected(), vec![open(Plan::download(300)), open(with_trailers(Plan::download(40)))]];
    cut_everywhere(&ops.concat(), 0);
}

#[test]
fn uploads_go_on_wherever_their_connection_is_cut() {
    let ops =
        [connected(), vec![open(Plan::upload(300, 20)), open(with_trailers(Plan::upload(40, 0)))]];
    cut_everywhere(&ops.concat(), 0);
}

#[test]
fn tunnels_go_on_wherever_their_connection_is_cut() {
    let late = Plan { responds_at_once: false, ..tunnel(50, 30) };
    cut_everywhere(&[connected(), vec![open(tunnel(200, 200)), open(late)]].concat(), 0);
}

#[test]
fn streams_go_on_whichever_connection_of_a_migration_is_cut() {
    for (side, to) in [(Client, Spare), (Server, Spare), (Server, Link(1)), (Client, Link(1))] {
        let migrate = Migrate { exchange: 0, side, to };
        let write = Write { exchange: 0, side: Server, bytes: 100 };
        let ops = [
            connected(),
            vec![
                open(Plan::upload(150, 250)),
                Flush { link: 0 },
                Flush { link: 0 },
                write,
                migrate,
            ],
        ];
        for link in [0, 1] {
            cut_everywhere(&ops.concat(), link);
        }
    }
}

#[test]
fn streams_go_on_without_another_connection() {
    // The client opens one, and joins the session that waits for it.
    let alone = vec![Flush { link: 0 }; 3];
    let ops = [alone, vec![open(Plan::download(300)), open(Plan::upload(100, 30))]];
    cut_everywhere(&ops.concat(), 0);
}
