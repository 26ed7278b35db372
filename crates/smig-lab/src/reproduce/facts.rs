//! The values of a figure for the sentences of its report.

use std::collections::BTreeMap;

/// The names of a figure's facts, by group; those of the group `""` exist once.
pub(super) type FactNames = &'static [(&'static str, &'static [&'static str])];

/// Values as text. A value that was not measured is absent.
#[derive(Debug)]
pub(super) struct Facts {
    names: FactNames,
    once: Values,
    groups: BTreeMap<&'static str, Vec<Values>>,
}

type Values = BTreeMap<&'static str, String>;

impl Facts {
    pub(super) const fn new(names: FactNames) -> Self {
        Self { names, once: Values::new(), groups: BTreeMap::new() }
    }

    /// Sets a value, if there is one.
    pub(super) fn set(&mut self, name: &'static str, value: Option<String>) {
        self.check("", name);
        if let Some(value) = value {
            self.once.insert(name, value);
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
            self.check(group, name);
            element.extend(value.map(|value| (name, value)));
        }
        self.groups.entry(group).or_default().push(element);
    }

    /// Sets the number of objects that did not end as expected, if there are any.
    pub(super) fn set_failed(&mut self, failed: usize) {
        self.set("failed", (failed > 0).then(|| failed.to_string()));
    }

    /// Returns a value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.once.get(name).map(String::as_str)
    }

    /// Returns the elements of a group, or the values that exist once as the only element.
    pub(super) fn each(&self, group: Option<&str>) -> impl Iterator<Item = &Values> {
        let once = group.is_none().then_some(&self.once);
        once.into_iter().chain(group.and_then(|group| self.groups.get(group)).into_iter().flatten())
    }

    fn check(&self, group: &str, name: &str) {
        let known =
            self.names.iter().any(|(known, names)| *known == group && names.contains(&name));
        debug_assert!(known, "a fact that no list names: {group} {name}");
    }
}
