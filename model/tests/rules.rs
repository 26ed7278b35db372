//! The rules hold within the narrower bounds.

use smig_model::{Size, check, suite};

#[test]
fn every_scenario_holds() {
    for scenario in suite(Size::Small) {
        let outcome = check(scenario, 2);
        assert!(outcome.states > 100, "{scenario}: only {} states", outcome.states);
        if let Some(violation) = outcome.violation {
            panic!("{scenario}: {}\n{}", violation.property, violation.trace);
        }
    }
}
