//! Runs fixed and random sequences.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mesh::frame_inspector::FaultInjection;
use crate::mesh::op::{Op, random_sequence};
use crate::mesh::rng::{Rng, mix};
use crate::mesh::setup::Setup;
use crate::mesh::shrink::{Failure, shrink};
use crate::mesh::world::World;

/// Number of sequences in which each case occurred.
pub type Coverage = BTreeMap<&'static str, u64>;

/// Runs one sequence. Returns the cases that occurred.
///
/// # Errors
///
/// The violation that the checks found.
pub fn replay(setup: Setup, ops: &[Op]) -> Result<Vec<&'static str>, String> {
    run(setup, ops, None, &mut None)
}

/// Runs one sequence with an injected fault. The returned cases contain `"fault injected"` if the
/// fault took effect.
///
/// # Errors
///
/// The violation that the checks found.
pub fn replay_with_fault(
    setup: Setup,
    ops: &[Op],
    injection: FaultInjection,
) -> Result<Vec<&'static str>, String> {
    run(setup, ops, Some(injection), &mut None)
}

/// Returns the frames of a sequence as text.
#[must_use]
pub fn trace(setup: Setup, ops: &[Op]) -> Vec<String> {
    let mut log = Some(Vec::new());
    let _outcome = run(setup, ops, None, &mut log);
    log.unwrap_or_default()
}

fn run(
    setup: Setup,
    ops: &[Op],
    injection: Option<FaultInjection>,
    log: &mut Option<Vec<String>>,
) -> Result<Vec<&'static str>, String> {
    let mut world = World::new(setup);
    world.mesh.inspector.fault_injection = injection;
    world.mesh.inspector.log = log.take();
    let has_log = world.mesh.inspector.log.is_some();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for (at, &op) in ops.iter().enumerate() {
            if let Some(log) = &mut world.mesh.inspector.log {
                log.push(format!("--- {at} {op:?}"));
            }
            world.apply(op);
            if !world.violations.is_empty() {
                return;
            }
        }
        if let Some(log) = &mut world.mesh.inspector.log {
            log.push("--- finish".to_owned());
        }
        world.finish();
    }));
    if has_log {
        *log = world.mesh.inspector.log.take();
    }
    match (outcome, world.violations.first()) {
        (Err(panic), _) => Err(format!("panic: {}", panic_text(panic.as_ref()))),
        (Ok(()), Some(violation)) => Err(violation.clone()),
        (Ok(()), None) => Ok(world.mesh.inspector.cases.iter().copied().collect()),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_owned()
}

/// Runs `sequences` random sequences; the first uses `seed` itself.
///
/// # Errors
///
/// The first failure, shrunk.
pub fn run_random_sequences(seed: u64, sequences: u64) -> Result<Coverage, Box<Failure>> {
    let mut coverage = Coverage::new();
    for number in 0..sequences {
        let seed = if number == 0 { seed } else { mix(mix(seed).wrapping_add(number)) };
        let (setup, ops) = sequence_from_seed(seed);
        match replay(setup, &ops) {
            Ok(cases) => {
                for case in cases {
                    *coverage.entry(case).or_default() += 1;
                }
            }
            Err(_) => return Err(Box::new(shrink(seed, setup, ops))),
        }
    }
    Ok(coverage)
}

/// Returns the sequence of a seed.
#[must_use]
pub fn sequence_from_seed(seed: u64) -> (Setup, Vec<Op>) {
    let mut rng = Rng::new(seed);
    (Setup::random(&mut rng), random_sequence(&mut rng))
}
