//! The model detects violations: it finds one if a rule is left out.

use smig_model::{Omission, check, witness};

#[test]
fn every_omission_is_caught() {
    let missed: Vec<_> = Omission::ALL
        .into_iter()
        .filter(|omission| {
            check(witness(*omission).with_omission(*omission), 1).violation.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "the model does not notice: {missed:?}");
}

/// Otherwise a witness would prove nothing.
#[test]
fn every_witness_holds_with_the_rule() {
    for omission in Omission::ALL {
        let scenario = witness(omission);
        if let Some(violation) = check(scenario, 1).violation {
            panic!(
                "{scenario}, with {}: {}\n{}",
                omission.rule(),
                violation.property,
                violation.trace
            );
        }
    }
}
