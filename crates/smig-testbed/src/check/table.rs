//! The results as a text table.

use std::fmt::Write as _;

use smig_link::millis;

use super::{CheckResult, DirectionCheck, ProfileCheck, TbfCheck};

/// Returns the header of the table.
#[must_use]
pub fn table_header() -> String {
    format!(
        "{:<27}{:>10}{:>10}{:>8}{:>9}  {:>8}{:>9}{:>7}{:>7}  {:<20}  {:>8}  {}",
        "profile",
        "spec",
        "Mbit/s",
        "diff",
        "TBF diff",
        "spec ms",
        "ms",
        "p50",
        "p99",
        "lost (interval)",
        "late p99",
        "verdict"
    )
}

/// Returns the lines of one profile: to the client, to the server, and a note if there is one.
#[must_use]
pub fn table_rows(check: &ProfileCheck) -> Vec<String> {
    let lateness_ms = check.timing.link.map_or(0.0, |link| millis::of(link.p99));
    let lateness_ms = lateness_ms.max(millis::of(check.timing.sender_p99));
    let verdict = match check.result() {
        CheckResult::Good => "good".into(),
        CheckResult::Disturbed => format!("disturbed ({})", violations(check)),
        CheckResult::OutOfBounds => format!("FAILED ({})", violations(check)),
    };
    let tbf = check.tbf.relative_error().map_or_else(|| "-".to_owned(), percent);
    let mut lines = vec![
        format!(
            "{}  {lateness_ms:>5.2} ms  {verdict}",
            line(&format!("{} down", check.name), &check.to_client, &tbf)
        ),
        line(&format!("{} up", " ".repeat(check.name.len())), &check.to_server, ""),
    ];
    let mut notes = Vec::new();
    if let TbfCheck::Skipped { reason } = &check.tbf {
        notes.push(format!("no TBF: {reason}"));
    }
    if check.timing.packets_lost_outside_link > 0 {
        notes.push(format!(
            "{} packets were lost outside the link",
            check.timing.packets_lost_outside_link
        ));
    }
    if !notes.is_empty() {
        lines.push(format!("    {}", notes.join("; ")));
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

fn violations(check: &ProfileCheck) -> String {
    let mut text = String::new();
    for (name, direction) in [("down", &check.to_client), ("up", &check.to_server)] {
        for violation in direction.violations() {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to memory does not fail.
            let _ = write!(text, "{comma}{violation} {name}");
        }
    }
    text
}

fn line(name: &str, direction: &DirectionCheck, tbf: &str) -> String {
    let DirectionCheck { rate, delay, loss } = direction;
    let loss = loss.as_ref().map_or_else(
        || "-".to_owned(),
        |loss| {
            let (low, high) = loss.interval();
            format!("{:.2} ({:.2}-{:.2}) %", loss.measured * 1e2, low * 1e2, high * 1e2)
        },
    );
    format!(
        "{name:<27}{:>10.3}{:>10.3}{:>8}{tbf:>9}  {:>8.2}{:>9.2}{:>7.2}{:>7.2}  {loss:<20}",
        rate.expected_mbit_per_s,
        rate.measured_mbit_per_s,
        percent(rate.relative_error()),
        delay.expected_ms,
        delay.measured_ms,
        delay.error_p50_ms,
        delay.error_p99_ms,
    )
}

fn percent(share: f64) -> String {
    format!("{:+.2}%", share * 1e2)
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::sample;
    use super::*;

    #[test]
    fn a_profile_has_one_line_per_direction() {
        let rows = table_rows(&sample());
        assert_eq!(rows.len(), 2);
        assert!(rows[0].starts_with("paper-wired down") && rows[0].ends_with("good"), "{rows:?}");
        assert!(rows[0].contains("-0.50%") && rows[0].contains("+0.01%"), "{rows:?}");
        assert!(rows[0].contains("1.20 (0.67-1.33) %"), "{rows:?}");
        assert!(rows[1].starts_with("            up"), "{rows:?}");
        let verdict = table_header().find("verdict");
        assert_eq!(rows[0].find("good"), verdict, "{}\n{}", table_header(), rows[0]);
    }

    #[test]
    fn failed_bounds_are_listed() {
        let mut check = sample();
        check.to_server.rate.measured_mbit_per_s = 5.0;
        check.to_client.delay.probes = 0;
        check.tbf = TbfCheck::Skipped { reason: "tc is not installed".into() };
        let rows = table_rows(&check);
        assert!(rows[0].ends_with("FAILED (delay down, rate up)"), "{rows:?}");
        assert!(rows[2].contains("no TBF: tc is not installed"), "{rows:?}");
    }
}
