//! The possible next steps.
//!
//! Actions that must happen eventually are separate from those that the environment or an
//! application may choose: a state without an action of the first kind must be settled.

use crate::endpoint::{Choice, Fate};
use crate::id::{Carrier, Conn, Side};
use crate::scenario::Scenario;
use crate::world::World;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deliver(Conn, Side, Choice),
    /// The side notices the end of the connection.
    Notice(Conn, Side),
    Send(Side),
    Credit(Side),
    DeclineOffer,
    /// `unbound_timeout`, while nothing is in flight.
    TimeOutLate(Side, Carrier),

    Move(Side, Conn),
    Offer,
    Reset(Side),
    Stop,
    CancelByClose(Side, Conn),
    Lose(Conn),
    GoAway(Side, Conn),
    ChangeSettings(Side, i8),
    /// `unbound_timeout`, while the MIGRATE may be in flight.
    TimeOutEarly(Side, Carrier),
}

/// Returns whether no action must happen any more.
pub(crate) fn is_at_rest(scenario: &Scenario, world: &World) -> bool {
    let mut actions = Vec::new();
    must_happen(scenario, world, &mut actions);
    actions.is_empty()
}

/// Adds the actions of a network that delivers, and of endpoints that fulfill their obligations.
pub(crate) fn must_happen(scenario: &Scenario, world: &World, actions: &mut Vec<Action>) {
    if world.has_fault() {
        return; // states after a protocol error carry no information
    }
    for side in Side::BOTH {
        for conn in Conn::all(scenario.conns) {
            if world.network.head(conn, side).is_some() {
                actions.push(Action::Deliver(conn, side, Choice::Follow));
            }
            if world.network.end_is_near(conn, side) {
                actions.push(Action::Notice(conn, side));
            }
        }
        let endpoint = world.endpoint(side);
        if endpoint.can_send() {
            actions.push(Action::Send(side));
        }
        if endpoint.can_credit() {
            actions.push(Action::Credit(side));
        }
        if world.network.is_quiet() {
            actions.extend(endpoint.unbound_carriers().map(|at| Action::TimeOutLate(side, at)));
        }
    }
    if world.endpoint(Side::Client).owes_offer() {
        actions.push(Action::DeclineOffer);
    }
}

/// Adds the actions of applications, policies and failures, within the budget.
pub(crate) fn may_happen(scenario: &Scenario, world: &World, actions: &mut Vec<Action>) {
    if world.has_fault()
        || Side::BOTH.iter().all(|side| world.endpoint(*side).fate() != Fate::Running)
    {
        return; // the stream has ended, so no choice affects it
    }
    let budget = &world.budget;
    for side in Side::BOTH {
        let endpoint = world.endpoint(side);
        let (moves, resets) = match side {
            Side::Client => (budget.client_moves, budget.client_resets),
            Side::Server => (budget.server_moves, budget.server_resets),
        };
        if moves > 0 {
            let free = Conn::all(scenario.conns).filter(|conn| endpoint.can_move_to(*conn));
            actions.extend(free.map(|conn| Action::Move(side, conn)));
        }
        if resets > 0 && endpoint.can_reset() {
            actions.push(Action::Reset(side));
            actions.extend(endpoint.closable().map(|conn| Action::CancelByClose(side, conn)));
        }
        if budget.timeouts > 0 && !world.network.is_quiet() {
            actions.extend(endpoint.unbound_carriers().map(|at| Action::TimeOutEarly(side, at)));
        }
        if budget.settings > 0 && endpoint.can_change_settings() {
            actions.extend([-1, 1].map(|by| Action::ChangeSettings(side, by)));
        }
        for conn in Conn::all(scenario.conns) {
            if budget.goaways > 0 && endpoint.can_go_away(conn) {
                actions.push(Action::GoAway(side, conn));
            }
            let declinable =
                world.network.head(conn, side).is_some_and(|head| endpoint.may_decline(conn, head));
            if budget.declines > 0 && declinable {
                actions.push(Action::Deliver(conn, side, Choice::Decline));
            }
        }
    }
    if budget.stops > 0 && world.endpoint(Side::Server).can_stop() {
        actions.push(Action::Stop);
    }
    if budget.offers > 0 && world.endpoint(Side::Server).can_offer() {
        actions.push(Action::Offer);
    }
    if budget.losses > 0 {
        let whole = Conn::all(scenario.conns).filter(|conn| !world.network.is_broken(*conn));
        actions.extend(whole.map(Action::Lose));
    }
}
