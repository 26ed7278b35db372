//! The values of a figure for the sentences of its report.

use std::collections::BTreeMap;

/// The names of a figure's facts, by group; those of the group `""` belong to no group.
pub(super) type FactNames = &'static [(&'static str, &'static [&'static str])];

/// Values as text. A value that was not measured is absent.
#[derive(Debug)]
pub(super) struct Facts {
    names: FactNames,
    ungrouped: Values,
    groups: BTreeMap<&'static str, Vec<Values>>,
}

type Values = BTreeMap<&'static str, String>;

impl Facts {
    pub(super) const fn new(names: FactNames) -> Self {
        Self { names, ungrouped: Values::new(), groups: BTreeMap::new() }
    }

    /// Sets a value, if there is one.
    pub(super) fn set(&mut self, name: &'static str, value: Option<String>) {
        self.debug_check_name("", name);
        if let Some(value) = value {
            self.ungrouped.insert(name, value);
        }
    }

    /// Adds an element to a group.
    pub(super) fn push<const N: usize>(
        &mut self,
        group: &'static str,
        values: [(&'static str, Option<String>); N],
    ) {
        let mut element = Values::new();
        for (name, value) in values {
            self.debug_check_name(group, name);
            element.extend(value.map(|value| (name, value)));
        }
        self.groups.entry(group).or_default().push(element);
    }

    /// Sets the number of objects that failed, if there are any.
    pub(super) fn set_failed(&mut self, failed_count: usize) {
        self.set("failed", (failed_count > 0).then(|| failed_count.to_string()));
    }

    /// Returns a value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.ungrouped.get(name).map(String::as_str)
    }

    /// Returns the elements of a group; without a group, the ungrouped values as the only element.
    pub(super) fn elements_of(&self, group: Option<&str>) -> impl Iterator<Item = &Values> {
        let ungrouped = group.is_none().then_some(&self.ungrouped);
        ungrouped
            .into_iter()
            .chain(group.and_then(|group| self.groups.get(group)).into_iter().flatten())
    }

    fn debug_check_name(&self, group: &str, name: &str) {
        let is_known =
            self.names.iter().any(|(known, names)| *known == group && names.contains(&name));
        debug_assert!(is_known, "a fact that no list names: {group} {name}");
    }
}
