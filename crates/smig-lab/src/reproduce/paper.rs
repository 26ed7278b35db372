//! Claims of the paper (SMig, CoNEXT 2016) and of the slides of its talk by figure, and the texts
//! of the report on our results: the files in `claims/`, which its README describes.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use super::claim::Claim;
use super::template::Template;

/// A figure or table of the paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    /// The name of the experiment and of the files.
    #[serde(skip)]
    pub(super) name: &'static str,
    /// The name in the paper.
    pub(super) place: String,
    pub(super) title: String,
    /// The research question, in a sentence.
    pub(super) question: String,
    /// The figure whose report this one shares.
    text_of: Option<String>,
    pub(super) claims: Vec<Claim>,
    #[serde(default)]
    report: Report,
}

/// Texts of the report on our results.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    /// Conclusions, each computed from the numbers.
    #[serde(default)]
    pub(super) sentences: Vec<Remark>,
    /// Presumed causes. They are not measured here.
    #[serde(default)]
    pub(super) readings: Vec<Remark>,
    /// Warnings for the reader.
    #[serde(default)]
    pub(super) warnings: Vec<Remark>,
    #[serde(default)]
    pub(super) chart: ChartText,
}

/// A sentence of the report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Remark {
    pub(super) text: Template,
    /// Keys of claims, one of which must not be fully reproduced; empty: no condition.
    #[serde(default)]
    pub(super) when: Vec<String>,
    /// Values that must be known although the text does not name them.
    #[serde(default)]
    pub(super) needs: Vec<String>,
    /// A group of facts: the sentence is repeated for each of its elements.
    pub(super) each: Option<String>,
}

/// Text around a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChartText {
    pub(super) title: String,
    pub(super) caption: String,
    /// Name of the reference value, if there is one.
    #[serde(default)]
    pub(super) reference: String,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../claims/", $name, ".toml")))),*]
    };
}

/// Names and texts of the files, in the paper's order.
const CLAIM_FILES: [(&str, &str); 11] = files![
    "slide-table",
    "table-1",
    "table-2",
    "figure-4",
    "figure-5",
    "figure-6",
    "figure-7",
    "figure-8",
    "figure-9",
    "figure-10",
    "figure-11",
];

/// The figures. Their files are part of the program, and a test parses them: errors cannot reach users.
static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let parsed: Result<_, String> =
        CLAIM_FILES.iter().map(|(name, text)| Figure::parse(name, text)).collect();
    parsed.unwrap_or_else(|error| panic!("{error}"))
});

impl Figure {
    /// Parses a file of claims.
    ///
    /// # Errors
    /// A description of the error, with file, place and the valid values.
    fn parse(name: &'static str, text: &str) -> Result<Self, String> {
        let error_text = |what: &dyn std::fmt::Display| format!("claims/{name}.toml: {what}");
        let mut figure: Self = toml::from_str(text).map_err(|error| error_text(&error))?;
        figure.name = name;
        let mut keys = BTreeSet::new();
        for claim in &mut figure.claims {
            claim.experiment = name;
            let error = if keys.insert(claim.key.clone()) {
                claim.validation_error()
            } else {
                Some("another claim has this key".to_owned())
            };
            if let Some(error) = error {
                return Err(error_text(&format_args!("claim `{}`: {error}", claim.key)));
            }
        }
        Ok(figure)
    }

    /// Returns the figure of this name.
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        FIGURES.iter().find(|figure| figure.name == name)
    }

    pub(super) fn claim(&self, key: &str) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.key == key)
    }

    /// Returns the texts of its report.
    pub(super) fn report(&self) -> &Report {
        let other = self.text_of.as_deref().and_then(Self::by_name);
        other.map_or(&self.report, |other| &other.report)
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::{CellSelection, Expected, Levels, Measure, Quantity};
    use super::super::facts::FactNames;
    use super::super::{Experiment, Extent, fact_names};
    use super::*;

    #[test]
    fn every_claims_file_parses_and_has_an_experiment() {
        for (name, text) in CLAIM_FILES {
            let figure = Figure::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!figure.claims.is_empty(), "{name}");
            assert!(Experiment::by_name(name).is_some() || name == "table-1", "{name}");
            assert_eq!(
                Figure::by_name(name).map(|figure| figure.claims.len()),
                Some(figure.claims.len())
            );
        }
        assert_eq!(Experiment::all().len() + 1, CLAIM_FILES.len(), "the survey is no experiment");
    }

    /// Returns the first placeholder, group or key in a figure's report that does not exist.
    fn first_unknown_reference(figure: &Figure, facts: FactNames) -> Option<String> {
        let report = figure.report();
        for remark in report.sentences.iter().chain(&report.readings).chain(&report.warnings) {
            // A figure that shares its report may lack a claim, whose remarks are then omitted.
            let is_known = |key: &String| FIGURES.iter().any(|figure| figure.claim(key).is_some());
            if let Some(key) = remark.when.iter().find(|key| !is_known(key)) {
                return Some(format!("`when`: no claim `{key}`"));
            }
            let group = remark.each.as_deref().unwrap_or_default();
            let Some((_, names)) = facts.iter().find(|(known, _)| *known == group) else {
                return Some(format!("`each`: no group `{group}`"));
            };
            let mut used = remark.text.names().chain(remark.needs.iter().map(String::as_str));
            if let Some(name) = used.find(|name| !names.contains(name)) {
                return Some(format!("no value `{name}`; there are: {}", names.join(", ")));
            }
        }
        None
    }

    #[test]
    fn reports_reference_only_existing_facts_and_claims() {
        for figure in FIGURES.iter() {
            let notes = figure.claims.iter().filter(|claim| claim.measure == Measure::Survey);
            for name in notes.flat_map(|claim| claim.note.names()) {
                assert!(fact_names(figure.name)[0].1.contains(&name), "{name}");
            }
            assert_eq!(
                first_unknown_reference(figure, fact_names(figure.name)),
                None,
                "{}",
                figure.name
            );
            if let Some(other) = &figure.text_of {
                assert!(Figure::by_name(other).is_some(), "{other}");
                assert_eq!(figure.report, Report::default(), "{}", figure.name);
            }
        }
    }

    /// Every axis is varied by the scenario and has this level, or is not varied at all; transfers exist.
    #[test]
    fn claims_select_levels_of_their_scenario() {
        for experiment in Experiment::all() {
            let campaign = experiment.campaign(Extent::Full, &|_| Ok(())).unwrap();
            let check = |claim: &Claim, quantity: &Quantity, cells: &[&CellSelection]| {
                let (Quantity::TransferTime(transfer) | Quantity::BytesAfterCancelOf(transfer)) =
                    quantity;
                for condition in &campaign.conditions {
                    let transfers = &condition.scenario.workload.transfers;
                    assert!(transfers.contains_key(transfer), "{claim:?}");
                }
                for (axis, levels) in cells.iter().copied().flatten() {
                    let levels = match levels {
                        Levels::One(level) => std::slice::from_ref(level),
                        Levels::Several(levels) => levels,
                    };
                    let of_axis = campaign
                        .conditions
                        .iter()
                        .filter_map(|condition| condition.name.level(axis));
                    let known_levels: BTreeSet<_> = of_axis.collect();
                    let is_known = |level: &&String| known_levels.contains(level.as_str());
                    // Figures 4 to 7 share their claims' form: an axis that a scenario does not vary excludes nothing.
                    assert!(
                        known_levels.is_empty() || levels.iter().all(|level| is_known(&level)),
                        "{axis} {claim:?}"
                    );
                }
            };
            for claim in &experiment.figure.claims {
                match &claim.measure {
                    Measure::Mean(value) | Measure::Maximum(value) => {
                        check(claim, &value.quantity, &[&value.cells]);
                    }
                    Measure::LessThan(pair) | Measure::MoreThan(pair) | Measure::Trend(pair) => {
                        check(claim, &pair.quantity, &[&pair.cells, &pair.baseline]);
                        for selection in pair.note_values.values() {
                            check(claim, &pair.quantity, &[selection]);
                        }
                    }
                    Measure::Survey => panic!("{claim:?}"),
                }
            }
        }
    }

    #[test]
    fn claim_texts_contain_their_numbers() {
        for claim in FIGURES.iter().flat_map(|figure| &figure.claims) {
            let number = match claim.expected {
                Expected::Seconds(seconds) => format!("{seconds:.2} s"),
                Expected::LessBy(share) => format!("{:.0} %", share * 100.0),
                Expected::MoreByLessThan(share) => format!("{:.1} %", share * 100.0),
                Expected::LongerThan(seconds) => format!("{seconds:.0} s"),
                Expected::Bytes(bytes) if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
                Expected::Bytes(bytes) => format!("{:.0} KB", bytes / 1e3),
                Expected::Less | Expected::More | Expected::Web => continue,
            };
            assert!(claim.text.contains(&number), "{number}: {}", claim.text);
        }
    }

    #[test]
    fn an_error_names_its_file_and_claim() {
        let valid_text = "place = 'p'\ntitle = 't'\nquestion = 'q'\n[[claims]]\nkey = 'less'\nplace = 'p'\ntext = 't'\n\
            expected = { less-by = 0.9 }\nnote = '{scheme}'\n[claims.measured.less-than]\n\
            of = { time-of = 'small' }\ncells = { scheme = ['A', 'B'] }\nthan = { scheme = 'N' }\nchoose = 'largest'\n";
        assert!(Figure::parse("figure-4", valid_text).is_ok());
        for (from, to, expected_error) in [
            ("less-by = 0.9", "less-by = 'x'", "line 8"),
            (
                "time-of",
                "times-of",
                "unknown variant `times-of`, expected `time-of` or `bytes-after-cancel-of`",
            ),
            ("choose = 'largest'", "choose = 'best'", "expected `largest` or `smallest`"),
            ("key = 'less'", "kee = 'less'", "unknown field `kee`"),
            ("scheme = 'N'", "scheme = 3", "expected a level, or a list of levels"),
            ("{scheme}", "{scheme", "`{scheme` has no `}`"),
            (
                "{scheme}",
                "{buffer}",
                "claim `less`: `note`: {buffer} is not a value of this claim; it has: scheme",
            ),
            ("choose = 'largest'", "", "claim `less`: `scheme` has a list of levels: set `choose`"),
            ("['A', 'B']", "'A'", "claim `less`: `choose` needs an axis with a list of levels"),
            ("'N'", "['N', 'M']", "only one axis can have a list of levels"),
            (
                "{ less-by = 0.9 }",
                "{ bytes = 9 }",
                "claim `less`: `expected` Bytes(9.0) cannot be compared",
            ),
        ] {
            assert!(valid_text.contains(from), "{from}");
            let error = Figure::parse("figure-4", &valid_text.replacen(from, to, 1)).unwrap_err();
            assert!(
                error.starts_with("claims/figure-4.toml: ") && error.contains(expected_error),
                "{expected_error}: {error}"
            );
        }
        let text_with_duplicate =
            valid_text.to_owned() + &valid_text[valid_text.find("[[").unwrap()..];
        assert!(
            Figure::parse("figure-4", &text_with_duplicate)
                .unwrap_err()
                .ends_with("another claim has this key")
        );
    }
}
