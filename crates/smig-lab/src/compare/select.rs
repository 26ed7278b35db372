//! Selects the results of a side: `results/fig4:scheme=NoMig,buffer=large`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::scenario::ConditionName;
use crate::trial::TrialResult;

/// A directory or file with results, and the conditions to select from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Path of the results; none if it is the other side's path.
    pub path: Option<PathBuf>,
    /// Pairs of axis and level; a condition must match all of them.
    pub levels: Vec<(String, String)>,
}

/// An error in a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A part after the colon is not `axis=name`.
    #[error("{0:?} is not axis=name; a side is DIR, DIR:axis=name or :axis=name,axis=name")]
    Syntax(String),
    /// The selector is empty.
    #[error("empty; a side is DIR, DIR:axis=name or :axis=name,axis=name")]
    Empty,
}

impl Selector {
    /// Parses `PATH`, `PATH:axis=name,...` or `:axis=name,...`. A path that contains a colon
    /// followed by an equals sign needs a trailing `:`.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let (path, levels_text) = match text.rsplit_once(':') {
            Some((path, levels_text)) if levels_text.is_empty() || levels_text.contains('=') => {
                (path, levels_text)
            }
            _ => (text, ""),
        };
        let levels = levels_text.split(',').filter(|part| !part.is_empty()).map(|part| {
            let (axis, name) =
                part.split_once('=').ok_or_else(|| SelectorError::Syntax(part.to_owned()))?;
            Ok((axis.trim().to_owned(), name.trim().to_owned()))
        });
        let levels = levels.collect::<Result<Vec<_>, _>>()?;
        let path = (!path.is_empty()).then(|| PathBuf::from(path));
        if path.is_none() && levels.is_empty() {
            return Err(SelectorError::Empty);
        }
        Ok(Self { path, levels })
    }

    /// Returns whether the selector matches a result's condition.
    #[must_use]
    pub fn matches(&self, condition: &ConditionName) -> bool {
        self.levels.iter().all(|(axis, name)| condition.level(axis) == Some(name))
    }

    /// Returns the condition's levels on the axes that neither selector names.
    fn remaining_factors(&self, condition: &ConditionName, other: &Self) -> Vec<(String, String)> {
        let is_selected =
            |axis: &str| self.levels.iter().chain(&other.levels).any(|(wanted, _)| wanted == axis);
        condition.0.iter().filter(|(axis, _)| !is_selected(axis)).cloned().collect()
    }

    /// Returns the side's label in reports.
    #[must_use]
    pub fn label(&self) -> String {
        if self.levels.is_empty() {
            let path = self.path.as_deref().unwrap_or_else(|| Path::new(""));
            path.file_name().map_or_else(
                || path.display().to_string(),
                |name| name.to_string_lossy().into_owned(),
            )
        } else {
            let names: Vec<&str> = self.levels.iter().map(|(_, name)| name.as_str()).collect();
            names.join(" ")
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}", path.display())?;
        }
        for (index, (axis, name)) in self.levels.iter().enumerate() {
            write!(f, "{}{axis}={name}", if index == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// Results of both sides whose conditions have the same levels besides those that were selected.
#[derive(Debug)]
pub struct SettingRuns<'a> {
    /// These levels.
    pub levels: ConditionName,
    /// A's runs.
    pub a: Vec<&'a TrialResult>,
    /// B's runs.
    pub b: Vec<&'a TrialResult>,
}

/// Groups the results of both sides by the factor levels that they have in common. Omits levels
/// that only one side has. Whether disturbed runs count is the caller's choice.
#[must_use]
pub fn pair_by_setting<'a>(
    (a, a_results): (&Selector, &[&'a TrialResult]),
    (b, b_results): (&Selector, &[&'a TrialResult]),
) -> Vec<SettingRuns<'a>> {
    let mut groups: Vec<(Vec<(String, String)>, SettingRuns<'a>)> = Vec::new();
    for &result in a_results.iter().filter(|one| a.matches(&one.id.condition)) {
        let factors = a.remaining_factors(&result.id.condition, b);
        match groups.iter_mut().find(|(known, _)| *known == factors) {
            Some((_, group)) => group.a.push(result),
            None => {
                let levels = ConditionName(factors.clone());
                groups.push((factors, SettingRuns { levels, a: vec![result], b: Vec::new() }));
            }
        }
    }
    for &result in b_results.iter().filter(|one| b.matches(&one.id.condition)) {
        let factors = b.remaining_factors(&result.id.condition, a);
        if let Some((_, group)) = groups.iter_mut().find(|(known, _)| *known == factors) {
            group.b.push(result);
        }
    }
    groups.into_iter().map(|(_, group)| group).filter(|group| !group.b.is_empty()).collect()
}
