//! Properties that must hold in every state.
//!
//! They depend only on an endpoint's state, never on the path to it.

use stateright::Property;

use crate::action::is_at_rest;
use crate::endpoint::StreamState;
use crate::id::{Conn, Side};
use crate::world::{Machine, World};

pub(crate) fn all_properties() -> Vec<Property<Machine>> {
    vec![
        Property::always("bytes in order and once, no protocol error", no_fault),
        Property::always("at rest the stream has ended at both sides", no_deadlock),
        Property::always("at rest no state is pending", nothing_pending),
        Property::always("a stream fails only for a cause", no_failure_without_cause),
        Property::always("the windows of both ends agree", windows_agree),
        Property::always("a request that was refused is never processed", refused_never_processed),
        Property::always("with a connection left, a loss fails no stream", losses_are_survived),
    ]
}

fn holds_for_both_sides(holds: impl Fn(Side) -> bool) -> bool {
    Side::BOTH.into_iter().all(holds)
}

/// SMIG-8.18/same-bytes; the endpoints check each unit when they deliver it.
fn no_fault(_: &Machine, world: &World) -> bool {
    !world.has_fault()
}

/// At rest, each side is complete or failed. `state` is complete only with all units and the
/// END_STREAM of both directions, except for an upload that the server stopped. One side may be
/// complete and the other failed (SMIG-8.18/same-bytes, last sentence).
fn no_deadlock(machine: &Machine, world: &World) -> bool {
    world.has_fault()
        || holds_for_both_sides(|side| world.endpoint(side).state() != StreamState::Running)
        || !is_at_rest(&machine.0, world)
}

fn nothing_pending(machine: &Machine, world: &World) -> bool {
    world.has_fault()
        || holds_for_both_sides(|side| world.endpoint(side).has_nothing_pending())
        || !is_at_rest(&machine.0, world)
}

/// Moves, offers, declines, collisions, GOAWAY and SETTINGS never make a stream fail.
fn no_failure_without_cause(machine: &Machine, world: &World) -> bool {
    let (initial, current) = (&machine.0.budget, &world.budget);
    let has_cause = initial.losses != current.losses
        || initial.timeouts != current.timeouts
        || initial.client_resets != current.client_resets
        || initial.server_resets != current.server_resets;
    has_cause || holds_for_both_sides(|side| world.endpoint(side).state() != StreamState::Failed)
}

/// SMIG-13.9/never-processed: the client may send the request again, of any method.
fn refused_never_processed(_: &Machine, world: &World) -> bool {
    world.endpoint(Side::Client).state() != StreamState::Refused
        || world.endpoint(Side::Server).state() == StreamState::Idle
}

/// SMIG-13.2/adrift, SMIG-13.14/kept-to-the-end: also the last bytes arrive, of either end.
fn losses_are_survived(machine: &Machine, world: &World) -> bool {
    let (initial, current) = (&machine.0.budget, &world.budget);
    let has_other_cause = initial.timeouts != current.timeouts
        || initial.client_resets != current.client_resets
        || initial.server_resets != current.server_resets;
    let is_usable = |conn| {
        !world.network.is_lost(conn)
            && holds_for_both_sides(|side| !world.endpoint(side).has_sent_goaway(conn))
    };
    let has_connection = Conn::all(machine.0.conns).any(is_usable);
    !machine.0.has_resumption
        || has_other_cause
        || !has_connection
        || holds_for_both_sides(|side| world.endpoint(side).state() != StreamState::Failed)
}

/// With nothing in flight, each sender's window is equal to its receiver's.
fn windows_agree(_: &Machine, world: &World) -> bool {
    let comparable = |side| {
        world.endpoint(side).state() == StreamState::Running
            && world.endpoint(side).has_no_migration()
    };
    if !world.network.is_quiet() || !holds_for_both_sides(comparable) {
        return true;
    }
    holds_for_both_sides(|side| {
        world.endpoint(side).send_window() == world.endpoint(side.peer()).receive_window()
    })
}
