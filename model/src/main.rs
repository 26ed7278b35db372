//! Checks every scenario, prints statistics of the exploration, and fails on a violation.
//!
//! With the argument `omissions` it leaves out the rules one by one instead, and prints the trace
//! of a violation for each. Any other argument is a text: only scenarios whose name contains it are
//! checked.

use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

use smig_model::{Omission, Size, check, suite, witness};

fn main() -> ExitCode {
    let threads = available_parallelism().map_or(1, usize::from);
    let is_success = match std::env::args().nth(1).as_deref() {
        Some("omissions") => check_omissions(),
        text => check_rules(threads, text.unwrap_or_default()),
    };
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check_rules(threads: usize, text: &str) -> bool {
    let start = Instant::now();
    let mut states = 0;
    let mut broken_count = 0;
    let scenarios = suite(Size::Full).into_iter().filter(|one| one.to_string().contains(text));
    for scenario in scenarios {
        let outcome = check(scenario, threads);
        states += outcome.states;
        println!(
            "{:<72} {:>8} states, depth {:>2}, {:>5.1} s",
            scenario.to_string(),
            outcome.states,
            outcome.depth,
            outcome.elapsed.as_secs_f64()
        );
        if let Some(violation) = outcome.violation {
            broken_count += 1;
            println!("BROKEN: {}\n{}", violation.property, violation.trace);
        }
    }
    println!(
        "{states} states in {:.1} s; {broken_count} scenarios broken",
        start.elapsed().as_secs_f64()
    );
    broken_count == 0
}

fn check_omissions() -> bool {
    let mut missed_count = 0;
    for omission in Omission::ALL {
        let scenario = witness(omission).with_omission(omission);
        println!("{scenario}");
        match check(scenario, 1).violation {
            Some(violation) => println!("  breaks: {}\n{}", violation.property, violation.trace),
            None => {
                missed_count += 1;
                println!("  NOT DETECTED");
            }
        }
    }
    missed_count == 0
}
