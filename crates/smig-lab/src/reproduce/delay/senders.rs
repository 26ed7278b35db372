//! Table 1 and Figure 2a: the queues that senders fill, as `smig lab identify` probes them.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::super::data_table::{DataCell, number_column, text_column};
use super::super::drawing::{Drawing, Shape};
use super::super::evidence::Evidence;
use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::page_table::PAGE_FACTS;
use super::super::paper::Figure;
use crate::identify::{Family, paper_queue};

/// The file with the probes' lines, beside the other results.
pub const PROBES_FILE: &str = "senders.jsonl";

/// The name of this figure on the command line.
pub const SENDERS: &str = "delay-senders";

/// A probe, as `smig lab identify --json` prints it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(in super::super) struct SenderProbe {
    pub(in super::super) sender: String,
    pub(in super::super) object_bytes: u64,
    pub(in super::super) mtu: u32,
    pub(in super::super) max_queue: u32,
    pub(in super::super) time_to_max_s: f64,
    pub(in super::super) first_drop_s: Option<f64>,
    pub(in super::super) paper_rule: Family,
}

/// Everything that was probed, and the picture of two probes.
#[derive(Debug, Default)]
pub(in super::super) struct Probes {
    pub(in super::super) probes: Vec<SenderProbe>,
    pub(in super::super) picture: Option<String>,
}

/// Reads the probes of a directory; none if it has none.
pub(in super::super) fn read_probes(dir: &Path) -> io::Result<Probes> {
    let read = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::other(format!("{}: {error}", path.display()))),
    };
    let path = dir.join(PROBES_FILE);
    let mut probes = Vec::new();
    for (number, line) in (1..).zip(read(&path)?.unwrap_or_default().lines()) {
        let probe = serde_json::from_str(line).map_err(|error| {
            io::Error::other(format!("{}, line {number}: {error}", path.display()))
        })?;
        probes.push(probe);
    }
    let picture = read(&dir.join("figures").join(format!("{SENDERS}.svg")))?;
    Ok(Probes { probes, picture })
}

/// Returns the finding: each claim compared with the probes, and the paper's table beside ours.
pub(super) fn finding(figure: &'static Figure, evidence: &Evidence) -> Finding {
    let probes = &evidence.probes.probes;
    let mut finding = Finding::new(figure, "docs/identify.md");
    finding.run_count = probes.len();
    for claim in &figure.claims {
        if probes.is_empty() {
            finding.add_unmeasured(claim, "no probes in this directory".to_owned());
        } else {
            finding.compare_claim(claim, &[], evidence);
        }
    }
    fill_table(probes, &mut finding);
    if let Some(markup) = &evidence.probes.picture {
        finding.drawings.push(Drawing {
            name: figure.name.to_owned(),
            caption: "As the paper's Figure 2a: 160 kB with an MTU of 500 bytes, CUBIC with HyStart and without. Every packet of \
                      the queue is logged, and the sender's window sampled each 4 ms."
                .into(),
            shape: Shape::File(markup.clone()),
        });
    }
    finding.add_report_texts(&Facts::new(PAGE_FACTS));
    finding
}

fn fill_table(probes: &[SenderProbe], finding: &mut Finding) {
    finding.table.columns = vec![
        text_column("sender", "sender"),
        number_column("object_kb", "object, kB", 0),
        number_column("mtu", "MTU", 0),
        number_column("queue_packets", "longest queue", 0),
        number_column("after_s", "after, s", 1),
        number_column("paper_queue_packets", "the paper's", 0),
        number_column("paper_after_s", "after, s", 1),
        number_column("first_drop_s", "first drop, s", 1),
        text_column("by_rule", "by Igor's rule"),
    ];
    for probe in probes {
        let sender = probe.sender.parse().ok();
        let published =
            sender.and_then(|sender| paper_queue(&sender, probe.object_bytes, probe.mtu));
        finding.table.rows.push(vec![
            DataCell::text(&probe.sender),
            DataCell::Number(probe.object_bytes as f64 / 1e3),
            DataCell::Number(f64::from(probe.mtu)),
            DataCell::Number(f64::from(probe.max_queue)),
            DataCell::Number(probe.time_to_max_s),
            DataCell::of(published.map(|queue| f64::from(queue.packets))),
            DataCell::of(published.map(|queue| queue.at_s)),
            DataCell::of(probe.first_drop_s),
            DataCell::text(probe.paper_rule.to_string()),
        ]);
    }
}
