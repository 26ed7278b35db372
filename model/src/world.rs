//! Both endpoints and the network between them, as a stateright model.
//!
//! Must never make decisions: every choice is an action.

use stateright::{Model, Property};

use crate::action::{Action, add_optional_actions, add_required_actions};
use crate::endpoint::{Choice, Endpoint};
use crate::frame::Frame;
use crate::id::{Conn, Side};
use crate::network::Network;
use crate::property;
use crate::scenario::{Budget, Scenario};

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    endpoints: [Endpoint; 2],
    pub(crate) network: Network,
    pub(crate) budget: Budget,
}

impl World {
    fn new(scenario: &Scenario) -> Self {
        let mut network = Network::default();
        if scenario.has_joining_conn {
            network.send(Conn(1), Side::Client, Frame::JoinAck);
        }
        if scenario.is_request_in_flight {
            network.send(Conn(0), Side::Server, Frame::Request);
        }
        Self {
            endpoints: Side::BOTH.map(|side| Endpoint::new(side, scenario)),
            network,
            budget: scenario.budget,
        }
    }

    pub(crate) fn endpoint(&self, side: Side) -> &Endpoint {
        &self.endpoints[side.index()]
    }

    pub(crate) fn has_fault(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.fault().is_some())
    }

    /// Describes the state, for the end of a trace.
    pub(crate) fn summary(&self) -> String {
        Side::BOTH.map(|side| format!("    {side}: {}", self.endpoint(side).summary())).join("\n")
    }

    /// Applies `act` to one endpoint, and sends its output to the network.
    fn apply_to(&mut self, side: Side, act: impl FnOnce(&mut Endpoint)) {
        let endpoint = &mut self.endpoints[side.index()];
        act(endpoint);
        for (conn, frame) in endpoint.drain_outbox() {
            self.network.send(conn, side.peer(), frame);
        }
    }

    fn deliver(&mut self, conn: Conn, side: Side, choice: Choice) {
        if choice == Choice::Decline {
            self.budget.declines -= 1;
        }
        if let Some(frame) = self.network.deliver(conn, side) {
            if let Frame::Lost(lost) = frame {
                self.network.lose_connection(lost); // the server closes it
                self.network.notice_end(lost, side);
            }
            self.apply_to(side, |endpoint| endpoint.receive(conn, frame, choice));
        }
    }

    fn spend(
        &mut self,
        side: Side,
        client: fn(&mut Budget) -> &mut u8,
        server: fn(&mut Budget) -> &mut u8,
    ) {
        *match side {
            Side::Client => client(&mut self.budget),
            Side::Server => server(&mut self.budget),
        } -= 1;
    }

    fn spend_reset(&mut self, side: Side) {
        self.spend(side, |budget| &mut budget.client_resets, |budget| &mut budget.server_resets);
    }

    pub(crate) fn step(&mut self, action: Action) {
        match action {
            Action::Deliver(conn, side, choice) => self.deliver(conn, side, choice),
            Action::NoticeEnd(conn, side) => {
                self.network.notice_end(conn, side);
                self.apply_to(side, |endpoint| endpoint.on_connection_ended(conn));
            }
            Action::Send(side) => self.apply_to(side, Endpoint::send_data),
            Action::Credit(side) => self.apply_to(side, Endpoint::send_credit),
            Action::DeclineOffer => self.apply_to(Side::Client, Endpoint::decline_offer),
            Action::Resume(conn) => self.apply_to(Side::Client, |client| client.resume(conn)),
            Action::TellLost(lost, on) => {
                self.apply_to(Side::Client, |client| client.tell_lost(lost, on))
            }
            Action::GiveUp(side) => self.apply_to(side, Endpoint::give_up),
            Action::TimeOutWhenQuiet(side, at) => {
                self.apply_to(side, |endpoint| endpoint.time_out(at))
            }
            Action::Pull(conn) => {
                self.budget.pulls -= 1;
                self.apply_to(Side::Client, |client| client.resume(conn));
            }
            Action::Receipt(side, conn) => {
                self.budget.receipts -= 1;
                self.apply_to(side, |endpoint| endpoint.send_receipt(conn));
            }
            Action::Migrate(side, conn) => {
                self.spend(
                    side,
                    |budget| &mut budget.client_migrations,
                    |budget| &mut budget.server_migrations,
                );
                self.apply_to(side, |endpoint| endpoint.start_migration(conn));
            }
            Action::Offer => {
                self.budget.offers -= 1;
                self.apply_to(Side::Server, Endpoint::send_offer);
            }
            Action::Reset(side) => {
                self.spend_reset(side);
                self.apply_to(side, Endpoint::reset);
            }
            Action::Stop => {
                self.budget.stops -= 1;
                self.apply_to(Side::Server, Endpoint::stop);
            }
            Action::CancelByClose(side, conn) => {
                self.spend_reset(side);
                self.network.lose_connection(conn);
                self.network.notice_end(conn, side);
                self.apply_to(side, |endpoint| endpoint.cancel_by_close(conn));
            }
            Action::Lose(conn) => {
                self.budget.losses -= 1;
                self.network.lose_connection(conn);
            }
            Action::GoAway(side, conn) => {
                self.budget.goaways -= 1;
                self.apply_to(side, |endpoint| endpoint.send_goaway(conn));
            }
            Action::ChangeSettings(side, by) => {
                self.budget.settings_changes -= 1;
                self.apply_to(side, |endpoint| endpoint.change_settings(by));
            }
            Action::TimeOutInFlight(side, at) => {
                self.budget.timeouts -= 1;
                self.apply_to(side, |endpoint| endpoint.time_out(at));
            }
        }
    }
}

/// A scenario as a stateright model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine(pub(crate) Scenario);

impl Model for Machine {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        add_required_actions(&self.0, world, actions);
        add_optional_actions(&self.0, world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.step(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all_properties()
    }
}
