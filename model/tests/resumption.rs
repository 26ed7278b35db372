//! What breaks when a rule of `spec/resumption.md` is left out, and what holds with all of them.

use smig_model::{Omission, Size, check, suite, witness};

const ENDS: &str = "at rest the stream has ended at both sides";
const IN_ORDER: &str = "bytes in order and once, no protocol error";
const NO_CAUSE: &str = "a stream fails only for a cause";
const NOT_PROCESSED: &str = "a request that was refused is never processed";
const SURVIVES: &str = "with a connection left, a loss fails no stream";
const WINDOWS: &str = "the windows of both ends agree";

#[test]
fn each_rule_prevents_what_it_is_there_for() {
    let expectations = [
        (Omission::LostAnswerUnnoticed, ENDS),      // SMIG-13.2/adrift
        (Omission::OlderAttemptTaken, SURVIVES),    // SMIG-13.3/attempts
        (Omission::FreedAcrossGap, SURVIVES),       // SMIG-13.4/receipts, SMIG-13.5/no-gap
        (Omission::FreedBehindAnswer, SURVIVES),    // SMIG-13.5/no-gap
        (Omission::ReceiptWhileResuming, NO_CAUSE), // SMIG-13.6/no-receipts-now
        (Omission::EarlierIdServed, WINDOWS),       // SMIG-13.7/earlier-void
        (Omission::EarlyUsedAfterResume, IN_ORDER), // SMIG-13.7/earlier-void
        (Omission::OldCreditKept, WINDOWS),         // SMIG-13.8/absolute
        (Omission::TombstoneForgotten, NOT_PROCESSED), // SMIG-13.9/never-processed
        (Omission::ResetTakenForUnknown, NOT_PROCESSED), // SMIG-13.9/never-processed, SMIG-13.16/refused
        (Omission::KeptFreedWhileResuming, NO_CAUSE),    // SMIG-13.10/kept-until-answer
        (Omission::ResetEarlierForgotten, ENDS),         // SMIG-13.11/reset-earlier
        (Omission::CancelNotTold, ENDS),                 // SMIG-13.12/lost-last
        (Omission::LostOvertakes, SURVIVES),             // SMIG-13.12/lost-last
        (Omission::EarlierCopyCovered, SURVIVES),        // SMIG-13.15/copies
        (Omission::ForgottenWhenSent, SURVIVES),         // SMIG-13.14/kept-to-the-end
    ];
    for (omission, expected) in expectations {
        let violation = check(witness(omission).with_omission(omission), 1).violation;
        let violation = violation.unwrap_or_else(|| panic!("{omission}: nothing broke"));
        assert_eq!(violation.property, expected, "{omission}:\n{}", violation.trace);
    }
}

/// SMIG-13.1/who-resumes, SMIG-13.13/linger: also where GOAWAY leaves no connection to resume on, and
/// where all connections end, no end of the stream waits for ever.
#[test]
fn a_stream_that_cannot_be_resumed_ends_at_both_sides() {
    let hopeless = |name: &str| {
        name.contains("GOAWAY") || name.contains("2 losses") && !name.contains("among 3")
    };
    let scenarios = suite(Size::Full).into_iter().filter(|scenario| {
        let name = scenario.to_string();
        name.contains(", resumed") && hopeless(&name)
    });
    let mut count = 0;
    for scenario in scenarios {
        count += 1;
        if let Some(violation) = check(scenario, 1).violation {
            panic!("{scenario}: {}\n{}", violation.property, violation.trace);
        }
    }
    assert!(count >= 2, "{count} scenarios");
}
