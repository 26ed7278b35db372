//! The rules hold within the narrower bounds.

use smig_model::{Size, check, suite};

/// A name that promises events which the narrower bounds exclude would overstate what was checked.
#[test]
fn names_say_what_may_occur() {
    for size in [Size::Full, Size::Small] {
        for scenario in suite(size) {
            let (name, budget) = (scenario.to_string(), scenario.budget);
            for (word, count) in [
                ("decline", budget.declines),
                ("loss", budget.losses),
                ("reset", budget.client_resets + budget.server_resets),
                ("GOAWAY", budget.goaways),
                ("timeout", budget.timeouts),
                ("offer", budget.offers),
            ] {
                assert_eq!(name.contains(word), count > 0, "{name}: {word}");
            }
            assert_eq!(name.contains("download"), scenario.upload_units == 0, "{name}");
        }
    }
}

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
