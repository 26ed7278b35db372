//! Budgets: times that the median load must not exceed, for continuous integration.

use std::fmt::Write;
use std::str::FromStr;

use smig_chart::html::escape;

use super::summary::PageSummary;
use crate::scenario::TimeSpan;
use crate::workload::PageMetric;

/// A limit of a median time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The time.
    pub metric: PageMetric,
    /// Its limit.
    pub limit: TimeSpan,
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (metric, limit) =
            text.split_once('=').ok_or("expected METRIC=TIME, such as loaded=2s")?;
        let limit = TimeSpan::parse(limit).filter(|limit| !limit.0.is_zero());
        let limit = limit.ok_or("expected a time such as 2s or 800ms after =")?;
        Ok(Self { metric: metric.parse()?, limit })
    }
}

/// A budget and what one network and version of HTTP took.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetCheck {
    /// The network and the version of HTTP.
    pub condition: String,
    /// The budget.
    pub budget: Budget,
    /// The median in seconds; `None` if no load was complete.
    pub measured_s: Option<f64>,
    /// Number of loads that failed: with any, the budget is exceeded.
    pub failed: usize,
    /// Number of loads that the machine disturbed.
    pub disturbed: usize,
}

impl BudgetCheck {
    /// Checks each budget in each network, by each version of HTTP.
    #[must_use]
    pub fn all(budgets: &[Budget], summaries: &[PageSummary]) -> Vec<Self> {
        let check = |budget: &Budget, summary: &PageSummary| Self {
            condition: format!("{}, {}", summary.link, summary.protocol),
            budget: *budget,
            measured_s: summary.median_s(budget.metric),
            failed: summary.failed,
            disturbed: summary.disturbed,
        };
        summaries
            .iter()
            .flat_map(|summary| budgets.iter().map(move |budget| check(budget, summary)))
            .collect()
    }

    /// Returns whether the page kept it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        let limit_s = self.budget.limit.0.as_secs_f64();
        self.failed == 0 && self.measured_s.is_some_and(|measured_s| measured_s <= limit_s)
    }

    /// Returns the result in a sentence.
    #[must_use]
    pub fn describe(&self) -> String {
        let Budget { metric, limit } = self.budget;
        let measured = self.measured_s.map_or_else(
            || "was not measured".to_owned(),
            |measured_s| format!("{measured_s:.3} s"),
        );
        let failed = match self.failed {
            0 => String::new(),
            count => format!(", {count} loads failed"),
        };
        let disturbed = match self.disturbed {
            0 => String::new(),
            count => format!(", {count} loads disturbed"),
        };
        format!("{}: {metric} {measured}{failed}{disturbed}, budget {limit}", self.condition)
    }
}

/// Formats checks as JUnit XML, which continuous integration shows as tests.
#[must_use]
pub fn to_junit(page: &str, checks: &[BudgetCheck]) -> String {
    // XML has no control characters, not even escaped.
    let escape = |text: &str| escape(&text.replace(char::is_control, " "));
    let failures = checks.iter().filter(|check| !check.is_kept()).count();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\">\n",
        escape(page),
        checks.len()
    );
    for check in checks {
        let name = escape(&format!("{} {}", check.budget.metric, check.condition));
        let time_s = check.measured_s.unwrap_or(0.0);
        let _ = write!(xml, "  <testcase name=\"{name}\" time=\"{time_s:.3}\"");
        if check.is_kept() {
            xml.push_str("/>\n");
        } else {
            let message = escape(&check.describe());
            let _ = writeln!(xml, "><failure message=\"{message}\"/></testcase>");
        }
    }
    xml.push_str("</testsuite>\n");
    xml
}
