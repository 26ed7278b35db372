//! Claims of the studies by figure, and the texts of the report on our results: the files in `claims/`, which its
//! README describes.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use super::claim::Claim;
use super::template::Template;

/// A figure or table of a study.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    /// The name of the experiment and of the files.
    #[serde(skip)]
    pub(super) name: &'static str,
    /// The name of its study.
    #[serde(skip)]
    pub(super) study: &'static str,
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

/// A file of claims.
#[derive(Debug, Clone, Copy)]
struct ClaimsFile {
    study: &'static str,
    /// The figure's name.
    name: &'static str,
    /// The path below `claims/`.
    path: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($study:literal: $($name:literal in $path:literal),* $(,)?) => {
        [$(ClaimsFile {
            study: $study,
            name: $name,
            path: $path,
            text: include_str!(concat!("../../claims/", $path)),
        }),*]
    };
}

/// The files of the SMig paper, in its order.
const SMIG_FILES: [ClaimsFile; 11] = files![
    "smig":
    "slide-table" in "slide-table.toml",
    "table-1" in "table-1.toml",
    "table-2" in "table-2.toml",
    "figure-4" in "figure-4.toml",
    "figure-5" in "figure-5.toml",
    "figure-6" in "figure-6.toml",
    "figure-7" in "figure-7.toml",
    "figure-8" in "figure-8.toml",
    "figure-9" in "figure-9.toml",
    "figure-10" in "figure-10.toml",
    "figure-11" in "figure-11.toml",
];

/// The files of "Mind the Delay", in its order.
const DELAY_FILES: [ClaimsFile; 6] = files![
    "delay":
    "delay-grid" in "delay/grid.toml",
    "delay-windows" in "delay/windows.toml",
    "delay-places" in "delay/places.toml",
    "delay-senders" in "delay/senders.toml",
    "delay-sites" in "delay/sites.toml",
    "delay-cases" in "delay/cases.toml",
];

/// The files of the mosaic's post.
const MOSAIC_FILES: [ClaimsFile; 3] = files![
    "mosaic":
    "mosaic-table" in "mosaic/table.toml",
    "mosaic-large" in "mosaic/large.toml",
    "mosaic-push" in "mosaic/push.toml",
];

fn claims_files() -> impl Iterator<Item = &'static ClaimsFile> {
    SMIG_FILES.iter().chain(&DELAY_FILES).chain(&MOSAIC_FILES)
}

/// The figures. Their files are part of the program, and a test parses them: errors cannot reach users.
static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let parsed: Result<_, String> =
        claims_files().map(|file| Figure::parse(file, file.text)).collect();
    parsed.unwrap_or_else(|error| panic!("{error}"))
});

impl Figure {
    /// Parses a file of claims.
    ///
    /// # Errors
    /// A description of the error, with file, place and the valid values.
    fn parse(file: &ClaimsFile, text: &str) -> Result<Self, String> {
        let ClaimsFile { study, name, path, .. } = *file;
        let error_text = |what: &dyn std::fmt::Display| format!("claims/{path}: {what}");
        let mut figure: Self = toml::from_str(text).map_err(|error| error_text(&error))?;
        (figure.name, figure.study) = (name, study);
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

    /// Returns all figures of all studies, each study's in its order.
    pub(super) fn all() -> &'static [Self] {
        &FIGURES
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
    use super::super::{Experiment, Extent, Study};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_claims_file_parses_and_has_an_experiment() {
        // Measured by other means, or not at all.
        let without_trials = ["table-1", "delay-senders", "mosaic-push"];
        for file in claims_files() {
            let name = file.name;
            let figure = Figure::parse(file, file.text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!figure.claims.is_empty(), "{name}");
            assert_eq!(
                Experiment::by_name(name).is_none(),
                without_trials.contains(&name),
                "{name}"
            );
            assert_eq!(
                Figure::by_name(name).map(|figure| figure.claims.len()),
                Some(figure.claims.len())
            );
        }
        assert_eq!(Experiment::all().len() + without_trials.len(), claims_files().count());
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
            let fact_names = |name| Study::of_figure(name).unwrap().fact_names(name);
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
                for condition in &campaign.conditions {
                    let workload = &condition.scenario.workload;
                    let is_known = match quantity {
                        Quantity::TransferTime(name) | Quantity::BytesAfterCancelOf(name) => {
                            workload.transfers.contains_key(name)
                        }
                        Quantity::Page(_) => !workload.pages.is_empty(),
                    };
                    assert!(is_known, "{claim:?}");
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
                    Measure::Share(share) => {
                        let along: CellSelection = share.along_selection();
                        let quantity = Quantity::Page(share.time);
                        check(claim, &quantity, &[&share.cells, &share.baseline, &along]);
                        for condition in &campaign.conditions {
                            for (axis, _) in &condition.name.0 {
                                let is_named = share.cells.contains_key(axis)
                                    || share.baseline.contains_key(axis)
                                    || along.contains_key(axis);
                                assert!(is_named, "levels of `{axis}` are mixed: {claim:?}");
                            }
                        }
                    }
                    Measure::Windows(share) => {
                        let control = BTreeMap::from([(
                            "control".to_owned(),
                            Levels::One(share.control.clone()),
                        )]);
                        check(
                            claim,
                            &Quantity::Page(crate::workload::PageMetric::Loaded),
                            &[&control],
                        );
                    }
                    Measure::Survey | Measure::Senders(_) | Measure::Nothing => {
                        panic!("{claim:?}")
                    }
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
                Expected::Less
                | Expected::More
                | Expected::Web
                | Expected::ShareOfCells(_)
                | Expected::ShareBetween(..) => continue,
            };
            assert!(claim.text.contains(&number), "{number}: {}", claim.text);
        }
    }

    #[test]
    fn an_error_names_its_file_and_claim() {
        let valid_text = "place = 'p'\ntitle = 't'\nquestion = 'q'\n[[claims]]\nkey = 'less'\nplace = 'p'\ntext = 't'\n\
            expected = { less-by = 0.9 }\nnote = '{scheme}'\n[claims.measured.less-than]\n\
            of = { time-of = 'small' }\ncells = { scheme = ['A', 'B'] }\nthan = { scheme = 'N' }\nchoose = 'largest'\n";
        let file = claims_files().find(|file| file.name == "figure-4").unwrap();
        assert!(Figure::parse(file, valid_text).is_ok());
        for (from, to, expected_error) in [
            ("less-by = 0.9", "less-by = 'x'", "line 8"),
            (
                "time-of",
                "times-of",
                "unknown variant `times-of`, expected one of `time-of`, `bytes-after-cancel-of`, `page`",
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
            let error = Figure::parse(file, &valid_text.replacen(from, to, 1)).unwrap_err();
            assert!(
                error.starts_with("claims/figure-4.toml: ") && error.contains(expected_error),
                "{expected_error}: {error}"
            );
        }
        let text_with_duplicate =
            valid_text.to_owned() + &valid_text[valid_text.find("[[").unwrap()..];
        assert!(
            Figure::parse(file, &text_with_duplicate)
                .unwrap_err()
                .ends_with("another claim has this key")
        );
    }
}
