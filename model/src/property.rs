//! Properties that must hold in every state.
//!
//! They depend only on an endpoint's state, never on the path to it.

use stateright::Property;

use crate::action::is_at_rest;
use crate::endpoint::Fate;
use crate::id::Side;
use crate::world::{Machine, World};

pub(crate) fn all() -> Vec<Property<Machine>> {
    vec![
        Property::always("bytes in order and once, no protocol error", no_fault),
        Property::always("at rest the stream is over at both ends", no_deadlock),
        Property::always("at rest nothing is kept", nothing_kept),
        Property::always("a stream fails only for a cause", no_failure_without_cause),
        Property::always("the windows of both ends agree", windows_agree),
    ]
}

fn both(holds: impl Fn(Side) -> bool) -> bool {
    Side::BOTH.into_iter().all(holds)
}

/// SMIG-8.18/same-bytes; the endpoints check each unit when they deliver it.
fn no_fault(_: &Machine, world: &World) -> bool {
    !world.has_fault()
}

/// At rest, each end is complete or failed. `fate` is complete only with all units and the
/// END_STREAM of both directions. One end may be complete and the other failed
/// (SMIG-8.18/same-bytes, last sentence).
fn no_deadlock(machine: &Machine, world: &World) -> bool {
    world.has_fault()
        || both(|side| world.endpoint(side).fate() != Fate::Running)
        || !is_at_rest(&machine.0, world)
}

fn nothing_kept(machine: &Machine, world: &World) -> bool {
    world.has_fault()
        || both(|side| world.endpoint(side).keeps_nothing())
        || !is_at_rest(&machine.0, world)
}

/// Moves, offers, declines, collisions, GOAWAY and SETTINGS never make a stream fail.
fn no_failure_without_cause(machine: &Machine, world: &World) -> bool {
    let (first, now) = (&machine.0.budget, &world.budget);
    let cause = first.losses != now.losses
        || first.timeouts != now.timeouts
        || first.client_resets != now.client_resets
        || first.server_resets != now.server_resets;
    cause || both(|side| world.endpoint(side).fate() != Fate::Failed)
}

/// With nothing in flight, each sender's window is equal to its receiver's.
fn windows_agree(_: &Machine, world: &World) -> bool {
    let comparable =
        |side| world.endpoint(side).fate() == Fate::Running && world.endpoint(side).keeps_no_move();
    if !world.network.is_quiet() || !both(comparable) {
        return true;
    }
    both(|side| world.endpoint(side).send_window() == world.endpoint(side.peer()).receive_window())
}
