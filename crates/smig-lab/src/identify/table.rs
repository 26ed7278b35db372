//! Results as lines of a table.

use serde::Serialize;
use smig_chart::html::{Align, Table};

use super::known::{Classification, Classifier};
use super::paper::paper_queue;
use super::rule::{Family, Rule};
use super::sender::Sender;
use super::series::Series;
use super::spec::ProbeSpec;
use super::trace::QueueTrace;

/// A probe of a known sender, and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Identification {
    /// Who sent.
    pub sender: Sender,
    /// The object and the link.
    #[serde(flatten)]
    pub spec: ProbeSpec,
    /// The longest queue, in packets.
    pub max_queue: u32,
    /// Seconds until it was so long.
    pub time_to_max_s: f64,
    /// Seconds until the first packet was dropped.
    pub first_drop_s: Option<f64>,
    /// By Igor's published rule.
    pub paper_rule: Family,
    /// By the rule of its program.
    pub program_rule: Family,
    /// Which known senders it is like, if there are probes of known senders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub like: Option<Classification>,
}

impl Identification {
    /// Applies both rules, and compares with what is known.
    #[must_use]
    pub fn new(
        sender: Sender,
        spec: ProbeSpec,
        trace: &QueueTrace,
        known: Option<&Classifier<'_>>,
    ) -> Self {
        let longest = trace.longest();
        Self {
            sender,
            spec,
            max_queue: longest.packets,
            time_to_max_s: longest.at_s,
            first_drop_s: trace.first_drop_s(),
            paper_rule: Rule::Paper.judge(trace, spec.object_bytes),
            program_rule: Rule::Program.judge(trace, spec.object_bytes),
            like: known.and_then(|known| known.classify(&spec, &Series::new(&spec, trace))),
        }
    }
}

/// Returns a row for each probe, with the paper's figures where it has the same cell.
#[must_use]
pub fn table(results: &[Identification]) -> Table {
    let columns = [
        ("sender", Align::Left),
        ("object", Align::Right),
        ("MTU", Align::Right),
        ("round trip", Align::Right),
        ("longest queue", Align::Right),
        ("after", Align::Right),
        ("paper", Align::Right),
        ("first drop", Align::Right),
        ("by the paper's rule", Align::Left),
        ("by its program's", Align::Left),
        ("like", Align::Left),
    ];
    let rows = results.iter().map(row).collect();
    Table { columns: columns.map(|(name, align)| (name.to_owned(), align)).to_vec(), rows }
}

/// Returns, for each sender, how many of its probes are like which known sender: the confusion matrix, rows as measured. `None` if
/// nothing was compared.
#[must_use]
pub fn confusion(results: &[Identification]) -> Option<Table> {
    let compared =
        results.iter().filter_map(|result| Some((&result.sender, result.like.as_ref()?)));
    confusion_of(&compared.collect::<Vec<_>>())
}

/// The same of probes and what each is like.
pub(super) fn confusion_of(compared: &[(&Sender, &Classification)]) -> Option<Table> {
    let mut names: Vec<String> = compared.iter().map(|(_, like)| like.to_string()).collect();
    names.sort();
    names.dedup();
    let mut senders: Vec<&Sender> = compared.iter().map(|(sender, _)| *sender).collect();
    senders.sort();
    senders.dedup();
    let rows = senders.iter().map(|sender| {
        let count = |column: &String| {
            let same = |(other, like): &&(&Sender, &Classification)| {
                other == sender && like.to_string() == *column
            };
            compared.iter().filter(same).count().to_string()
        };
        std::iter::once(sender.to_string()).chain(names.iter().map(count)).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let heading = ("measured".to_owned(), Align::Left);
    let columns = names.iter().map(|name| (format!("like {name}"), Align::Right));
    let columns = std::iter::once(heading).chain(columns).collect();
    (!rows.is_empty()).then_some(Table { columns, rows })
}

fn row(result: &Identification) -> Vec<String> {
    let ProbeSpec { object_bytes, mtu, rtt_ms, sack } = result.spec;
    let paper = paper_queue(&result.sender, object_bytes, mtu).filter(|_| rtt_ms == 100 && !sack);
    let paper = paper
        .map_or_else(String::new, |paper| format!("{} after {:.1} s", paper.packets, paper.at_s));
    vec![
        result.sender.to_string(),
        smig_chart::format_bytes(object_bytes),
        mtu.to_string(),
        format!("{rtt_ms} ms"),
        result.max_queue.to_string(),
        format!("{:.1} s", result.time_to_max_s),
        paper,
        result.first_drop_s.map_or_else(|| "none".to_owned(), |at_s| format!("{at_s:.1} s")),
        result.paper_rule.to_string(),
        result.program_rule.to_string(),
        result.like.as_ref().map_or_else(String::new, Classification::to_string),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::QueuePoint;

    #[test]
    fn the_confusion_matrix_counts_each_sender_once() {
        let result = |sender: &str, like: Option<&str>| {
            let trace =
                QueueTrace { queue: vec![], drops_s: vec![], windows: vec![], received_bytes: 1 };
            let spec = ProbeSpec { object_bytes: 1, mtu: 500, rtt_ms: 100, sack: false };
            let mut result = Identification::new(sender.parse().unwrap(), spec, &trace, None);
            let nearest = "bbr".parse().unwrap();
            let senders = like.map(|name| name.parse().unwrap()).into_iter().collect();
            result.like = Some(Classification { senders, nearest, distance: 0.0 });
            result
        };
        let results =
            [result("reno", Some("reno")), result("reno", None), result("bbr", Some("bbr"))];
        let table = confusion(&results).unwrap();
        let headings: Vec<_> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(headings, ["measured", "like bbr", "like reno", "like unknown"]);
        assert_eq!(table.rows, [["bbr", "1", "0", "0"], ["reno", "0", "1", "1"]]);
        assert_eq!(confusion(&[]), None);
    }

    #[test]
    fn a_row_has_the_papers_figure_only_for_its_own_cell() {
        let trace = QueueTrace {
            queue: vec![QueuePoint { at_s: 1.44, packets: 100 }],
            drops_s: vec![1.5],
            windows: vec![],
            received_bytes: 320_000,
        };
        let spec = ProbeSpec { object_bytes: 320_000, mtu: 500, rtt_ms: 100, sack: false };
        let row_of = |spec| row(&Identification::new("cubic".parse().unwrap(), spec, &trace, None));
        let same = row_of(spec);
        assert_eq!(same[4..7], ["100", "1.4 s", "100 after 1.5 s"]);
        assert_eq!(same[7..], ["1.5 s", "loss-based", "loss-based", ""]);
        assert_eq!(row_of(ProbeSpec { rtt_ms: 150, ..spec })[6], "");
        assert_eq!(row_of(ProbeSpec { mtu: 1_500, ..spec })[6], "");
    }
}
