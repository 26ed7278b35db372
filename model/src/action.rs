//! The possible next steps.
//!
//! Actions that must happen eventually are separate from those that the environment or an
//! application may choose: in a state without an action of the first kind, the stream has ended.

use crate::endpoint::Choice;
use crate::id::{Conn, Side, StreamAddr};
use crate::scenario::Scenario;
use crate::world::World;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deliver(Conn, Side, Choice),
    /// The side notices the end of the connection.
    NoticeEnd(Conn, Side),
    Send(Side),
    Credit(Side),
    DeclineOffer,
    /// The client resumes a stream that is adrift.
    Resume(Conn),
    /// The client tells on one connection that another has ended.
    TellLost(Conn, Conn),
    /// `linger`, while no connection is left.
    GiveUp(Side),
    /// `unbound_timeout`, while nothing is in flight.
    TimeOutWhenQuiet(Side, StreamAddr),

    Migrate(Side, Conn),
    Offer,
    Reset(Side),
    Stop,
    CancelByClose(Side, Conn),
    /// The client resumes a stream whose connection lives.
    Pull(Conn),
    Receipt(Side, Conn),
    Lose(Conn),
    GoAway(Side, Conn),
    ChangeSettings(Side, i8),
    /// `unbound_timeout`, while the MIGRATE may be in flight.
    TimeOutInFlight(Side, StreamAddr),
}

/// Returns whether no required action is left.
pub(crate) fn is_at_rest(scenario: &Scenario, world: &World) -> bool {
    let mut actions = Vec::new();
    add_required_actions(scenario, world, &mut actions);
    actions.is_empty()
}

/// Adds the actions of a network that delivers, and of endpoints that fulfill their obligations.
pub(crate) fn add_required_actions(scenario: &Scenario, world: &World, actions: &mut Vec<Action>) {
    if world.has_fault() {
        return; // states after a protocol error carry no information
    }
    for side in Side::BOTH {
        for conn in Conn::all(scenario.conns) {
            if world.network.next_frame(conn, side).is_some() {
                actions.push(Action::Deliver(conn, side, Choice::Follow));
            }
            if world.network.has_unnoticed_end(conn, side) {
                actions.push(Action::NoticeEnd(conn, side));
            }
        }
        let endpoint = world.endpoint(side);
        if endpoint.can_send() {
            actions.push(Action::Send(side));
        }
        if endpoint.can_send_credit() {
            actions.push(Action::Credit(side));
        }
        if world.network.is_quiet() {
            actions
                .extend(endpoint.unbound_carriers().map(|at| Action::TimeOutWhenQuiet(side, at)));
        }
    }
    let client = world.endpoint(Side::Client);
    if client.has_unanswered_offer() {
        actions.push(Action::DeclineOffer);
    }
    if client.is_adrift() {
        let targets = Conn::every().filter(|conn| client.can_resume_on(*conn));
        actions.extend(targets.map(Action::Resume));
    }
    if let Some(lost) = client.lost_to_tell() {
        let usable = Conn::every().filter(|conn| client.can_tell_on(*conn));
        actions.extend(usable.map(|on| Action::TellLost(lost, on)));
    }
    let idle = Side::BOTH.into_iter().filter(|side| world.endpoint(*side).must_give_up());
    actions.extend(idle.map(Action::GiveUp));
}

/// Adds the actions of applications, policies and failures, within the budget.
pub(crate) fn add_optional_actions(scenario: &Scenario, world: &World, actions: &mut Vec<Action>) {
    if world.has_fault() || Side::BOTH.iter().all(|side| !world.endpoint(*side).has_unfinished()) {
        return; // the stream has ended, so no choice affects it
    }
    let budget = &world.budget;
    for side in Side::BOTH {
        let endpoint = world.endpoint(side);
        let (migrations, resets) = match side {
            Side::Client => (budget.client_migrations, budget.client_resets),
            Side::Server => (budget.server_migrations, budget.server_resets),
        };
        if migrations > 0 {
            let targets = Conn::all(scenario.conns).filter(|conn| endpoint.can_migrate_to(*conn));
            actions.extend(targets.map(|conn| Action::Migrate(side, conn)));
        }
        if resets > 0 && endpoint.can_reset() {
            actions.push(Action::Reset(side));
            actions.extend(
                endpoint.closable_connection().map(|conn| Action::CancelByClose(side, conn)),
            );
        }
        if budget.timeouts > 0 && !world.network.is_quiet() {
            actions.extend(endpoint.unbound_carriers().map(|at| Action::TimeOutInFlight(side, at)));
        }
        if budget.settings_changes > 0 && endpoint.can_change_settings() {
            actions.extend([-1, 1].map(|by| Action::ChangeSettings(side, by)));
        }
        for conn in Conn::all(scenario.conns) {
            if budget.goaways > 0 && endpoint.can_send_goaway(conn) {
                actions.push(Action::GoAway(side, conn));
            }
            let declinable = world
                .network
                .next_frame(conn, side)
                .is_some_and(|frame| endpoint.may_decline(conn, frame));
            if budget.declines > 0 && declinable {
                actions.push(Action::Deliver(conn, side, Choice::Decline));
            }
        }
    }
    if budget.pulls > 0 && !world.endpoint(Side::Client).is_adrift() {
        let client = world.endpoint(Side::Client);
        let targets = Conn::every().filter(|conn| client.can_resume_on(*conn));
        actions.extend(targets.map(Action::Pull));
    }
    if budget.receipts > 0 {
        for side in Side::BOTH {
            let read = Conn::every().filter(|conn| world.endpoint(side).can_send_receipt(*conn));
            actions.extend(read.map(|conn| Action::Receipt(side, conn)));
        }
    }
    if budget.stops > 0 && world.endpoint(Side::Server).can_stop() {
        actions.push(Action::Stop);
    }
    if budget.offers > 0 && world.endpoint(Side::Server).can_offer() {
        actions.push(Action::Offer);
    }
    if budget.losses > 0 {
        let unbroken = Conn::all(scenario.conns).filter(|conn| !world.network.is_lost(*conn));
        actions.extend(unbroken.map(Action::Lose));
    }
}
