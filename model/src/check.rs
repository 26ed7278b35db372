//! Explores one scenario and renders the result.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::endpoint::Choice;
use crate::scenario::Scenario;
use crate::world::{Machine, World};

/// Result of an exploration.
#[derive(Debug)]
pub struct ExplorationResult {
    /// Number of distinct states reached.
    pub states: usize,
    /// Number of levels of the search: one more than the steps to the farthest state.
    pub depth: usize,
    /// Time spent.
    pub elapsed: Duration,
    /// The violated property and a trace to it, if any.
    pub violation: Option<Violation>,
}

/// A property that does not hold.
#[derive(Debug)]
pub struct Violation {
    /// The property's name.
    pub property: &'static str,
    /// The steps to the violation, one per line, then the state.
    pub trace: String,
}

/// Explores every state within the scenario's bounds, or until a violation.
#[must_use]
pub fn check(scenario: Scenario, threads: usize) -> ExplorationResult {
    let start = Instant::now();
    let checker = Machine(scenario)
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    let violation = first_violation(&checker).map(|found| {
        let (property, path) = shortest_violation(scenario, found);
        Violation { property, trace: render_trace(path) }
    });
    ExplorationResult {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        elapsed: start.elapsed(),
        violation,
    }
}

type Discovery = (&'static str, Path<World, Action>);

fn first_violation(checker: &impl Checker<Machine>) -> Option<Discovery> {
    checker.discoveries().into_iter().min_by_key(|(name, path)| (count_steps(path), *name))
}

fn count_steps(path: &Path<World, Action>) -> usize {
    path.clone().into_actions().len()
}

/// Returns a violation with the fewest steps, for readability: the checker stops some time after
/// the first, so the search is repeated with a smaller depth until nothing is found.
fn shortest_violation(scenario: Scenario, mut discovery: Discovery) -> Discovery {
    loop {
        let step_count = count_steps(&discovery.1); // depths start at 1, and the bound is exclusive
        let checker = Machine(scenario)
            .checker()
            .finish_when(HasDiscoveries::Any)
            .target_max_depth(step_count + 1)
            .spawn_bfs()
            .join();
        match first_violation(&checker) {
            Some(better) if count_steps(&better.1) < step_count => discovery = better,
            _ => return discovery,
        }
    }
}

fn render_trace(path: Path<World, Action>) -> String {
    let mut text = String::new();
    let mut last_world = None;
    for (number, (world, action)) in path.into_vec().into_iter().enumerate() {
        if let Some(action) = action {
            let _ = writeln!(text, "  {:>3}. {}", number + 1, describe(&world, action));
        }
        last_world = Some(world);
    }
    if let Some(world) = last_world {
        let _ = writeln!(text, "  then:\n{}", world.summary());
    }
    text
}

fn describe(world: &World, action: Action) -> String {
    match action {
        Action::Deliver(conn, side, choice) => {
            let frame =
                world.network.next_frame(conn, side).map(ToString::to_string).unwrap_or_default();
            let suffix = if choice == Choice::Decline { ", and declines" } else { "" };
            format!("{side} reads {conn} {frame}{suffix}")
        }
        Action::NoticeEnd(conn, side) => format!("{side} notices the end of {conn}"),
        Action::Send(side) => format!("{side} sends data"),
        Action::Credit(side) => format!("{side} gives credit"),
        Action::DeclineOffer => "client declines the offer".to_owned(),
        Action::Resume(conn) => format!("client resumes on {conn}"),
        Action::Pull(conn) => format!("client resumes on {conn}, though its connection lives"),
        Action::TellLost(lost, on) => format!("client tells on {on} that {lost} has ended"),
        Action::GiveUp(side) => format!("{side} gives the stream up: no connection is left"),
        Action::Receipt(side, conn) => format!("{side} sends a receipt on {conn}"),
        Action::TimeOutWhenQuiet(side, at) | Action::TimeOutInFlight(side, at) => {
            format!("{side} drops the unbound carrier {at} after its timeout")
        }
        Action::Migrate(side, conn) => format!("{side} moves the stream to {conn}"),
        Action::Offer => "server offers".to_owned(),
        Action::Reset(side) => format!("{side} resets the stream"),
        Action::Stop => "server stops the upload".to_owned(),
        Action::CancelByClose(side, conn) => format!("{side} cancels by closing {conn}"),
        Action::Lose(conn) => format!("{conn} breaks"),
        Action::GoAway(side, conn) => format!("{side} sends GOAWAY on {conn}"),
        Action::ChangeSettings(side, by) => format!("{side} changes its initial window by {by:+}"),
    }
}
