//! Runs sequences, finds the shortest that fails, and says how to run it again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mesh::op::{Op, sequence};
use crate::mesh::rng::{Rng, mix};
use crate::mesh::setup::Setup;
use crate::mesh::watch::Sabotage;
use crate::mesh::world::World;

/// In how many sequences each case was met.
pub type Coverage = BTreeMap<&'static str, u64>;

/// A sequence that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the sequence.
    pub seed: u64,
    /// Its start.
    pub setup: Setup,
    /// Its steps, as few as still fail.
    pub ops: Vec<Op>,
    /// What is wrong.
    pub fault: String,
}

/// Runs one sequence.
///
/// # Errors
///
/// What is wrong.
pub fn replay(setup: Setup, ops: &[Op]) -> Result<Vec<&'static str>, String> {
    run(setup, ops, None, &mut None)
}

/// Runs one sequence with a fault of delivery. The cases that it met contain `"sabotage"` if the fault
/// happened.
///
/// # Errors
///
/// What the checks found wrong.
pub fn replay_spoiled(
    setup: Setup,
    ops: &[Op],
    sabotage: Sabotage,
) -> Result<Vec<&'static str>, String> {
    run(setup, ops, Some(sabotage), &mut None)
}

/// The frames of a sequence, as text.
#[must_use]
pub fn trace(setup: Setup, ops: &[Op]) -> Vec<String> {
    let mut log = Some(Vec::new());
    let _outcome = run(setup, ops, None, &mut log);
    log.unwrap_or_default()
}

fn run(
    setup: Setup,
    ops: &[Op],
    sabotage: Option<Sabotage>,
    log: &mut Option<Vec<String>>,
) -> Result<Vec<&'static str>, String> {
    let mut world = World::new(setup);
    world.mesh.watch.sabotage = sabotage;
    world.mesh.watch.log = log.take();
    let logs = world.mesh.watch.log.is_some();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for (at, &op) in ops.iter().enumerate() {
            if let Some(log) = &mut world.mesh.watch.log {
                log.push(format!("--- {at} {op:?}"));
            }
            world.apply(op);
            if !world.faults.is_empty() {
                return;
            }
        }
        if let Some(log) = &mut world.mesh.watch.log {
            log.push("--- finish".to_owned());
        }
        world.finish();
    }));
    if logs {
        *log = world.mesh.watch.log.take();
    }
    match (outcome, world.faults.first()) {
        (Err(panic), _) => Err(format!("panic: {}", panic_text(panic.as_ref()))),
        (Ok(()), Some(fault)) => Err(fault.clone()),
        (Ok(()), None) => Ok(world.mesh.watch.seen.iter().copied().collect()),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text").to_owned()
}

/// Runs `sequences` random sequences; the first has the seed `seed` itself.
///
/// # Errors
///
/// The first that fails, shrunk.
pub fn random_sequences(seed: u64, sequences: u64) -> Result<Coverage, Box<Failure>> {
    let mut coverage = Coverage::new();
    for number in 0..sequences {
        let seed = if number == 0 { seed } else { mix(mix(seed).wrapping_add(number)) };
        let (setup, ops) = random(seed);
        match replay(setup, &ops) {
            Ok(seen) => {
                for case in seen {
                    *coverage.entry(case).or_default() += 1;
                }
            }
            Err(_) => return Err(Box::new(shrink(seed, setup, ops))),
        }
    }
    Ok(coverage)
}

/// The sequence of a seed.
#[must_use]
pub fn random(seed: u64) -> (Setup, Vec<Op>) {
    let mut rng = Rng::new(seed);
    (Setup::random(&mut rng), sequence(&mut rng))
}

/// Leaves out steps while what is left still fails.
fn shrink(seed: u64, setup: Setup, ops: Vec<Op>) -> Failure {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let fails = |setup: Setup, ops: &[Op]| replay(setup, ops).err();
    let (mut setup, mut ops) = (setup, ops);
    let mut size = ops.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        let mut shorter = false;
        while start < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(start..(start + size).min(ops.len()));
            if fails(setup, &fewer).is_some() {
                ops = fewer;
                shorter = true;
            } else {
                start += size;
            }
        }
        if size > 1 || !shorter {
            size /= 2;
        }
    }
    for simpler in simpler_setups() {
        let simpler = simpler(setup);
        if fails(simpler, &ops).is_some() {
            setup = simpler;
        }
    }
    let fault = fails(setup, &ops).unwrap_or_default();
    std::panic::set_hook(hook);
    Failure { seed, setup, ops, fault }
}

/// Each takes one number of a setup back to its default.
fn simpler_setups() -> [fn(Setup) -> Setup; 15] {
    [
        |s| Setup { security: Setup::default().security, ..s },
        |s| Setup { client_window: Setup::default().client_window, ..s },
        |s| Setup { server_window: Setup::default().server_window, ..s },
        |s| Setup { connection_window: Setup::default().connection_window, ..s },
        |s| Setup { send_buffer: Setup::default().send_buffer, ..s },
        |s| Setup { socket: Setup::default().socket, ..s },
        |s| Setup { client_tolerates: Setup::default().client_tolerates, ..s },
        |s| Setup { server_tolerates: Setup::default().server_tolerates, ..s },
        |s| Setup { max_frame: Setup::default().max_frame, ..s },
        |s| Setup { max_unsent: Setup::default().max_unsent, ..s },
        |s| Setup { client_moves: Setup::default().client_moves, ..s },
        |s| Setup { server_moves: Setup::default().server_moves, ..s },
        |s| Setup { replay_limit: Setup::default().replay_limit, ..s },
        |s| Setup { max_streams: Setup::default().max_streams, ..s },
        |s| Setup { push: Setup::default().push, ..s },
    ]
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "sequence {:#x} fails: {}", self.seed, self.fault)?;
        writeln!(f, "shortest sequence that fails:\nlet setup = {:?};\nlet ops = [", self.setup)?;
        for op in &self.ops {
            writeln!(f, "    {op:?},")?;
        }
        writeln!(f, "];\nframes:")?;
        for line in trace(self.setup, &self.ops) {
            writeln!(f, "    {line}")?;
        }
        write!(
            f,
            "to run it again: SMIG_SEED={:#x} SMIG_SEQUENCES=1 cargo test --profile sim \
             -p smig-testkit --test random",
            self.seed
        )
    }
}
