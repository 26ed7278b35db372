//! Loads a campaign from the text of a scenario file; every fault is reported with line and key.
//!
//! Each combination of variants is merged and validated before anything runs, so the last trial
//! cannot fail for a reason that was visible before the first.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_path_to_error::Segment;
use sha2::{Digest as _, Sha256};
use smig_link::RateSpec;
use smig_settings::{Diagnostic, Diagnostics, KeyLocations};
use toml::{Table, Value};

use super::check::{self, ValidLinks};
use super::command::named_file_digests;
use super::fraction::{
    CELL_AXIS, CellTable, Combination, Levels, SkipTable, cells, combinations, unused_skips,
};
use super::published_keys::as_published;
use super::recorded::Recordings;
use super::spec::{Scenario, ServerKind};
use super::trials::{Campaign, Condition, Fingerprint, hex};

/// Validates one setting of `smig serve`, given as TOML text with its section; returns the error.
pub type SettingsCheck<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// Loads a scenario file.
///
/// # Errors
/// All faults in the file.
pub fn load(path: &Path, check_setting: SettingsCheck<'_>) -> Result<Campaign, Diagnostics> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Diagnostics::unreadable(path, "the scenario file", &error))?;
    let stem = path.file_stem().map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy());
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let dir = absolute.parent().unwrap_or(&absolute);
    parse(&text, &stem, dir, check_setting)
        .map_err(|faults| Diagnostics { file, diagnostics: faults })
}

/// Keys of the file above the scenario itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHead {
    name: Option<String>,
    #[serde(default)]
    about: String,
    #[serde(default = "default_repetitions")]
    repetitions: u32,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    variants: Levels,
    #[serde(default)]
    levels: Levels,
    #[serde(default)]
    cells: BTreeMap<String, CellTable>,
    #[serde(default)]
    skip: Vec<SkipTable>,
}

impl FileHead {
    /// Returns the table at a key path of a [`Combination`].
    fn layer(&self, path: &[String]) -> Option<&Table> {
        let [section, axis, name] = path else { return None };
        let axes = if section == "levels" { &self.levels } else { &self.variants };
        axes.get(axis)?.get(name)
    }
}

const HEAD_KEYS: [&str; 8] =
    ["name", "about", "repetitions", "seed", "variants", "levels", "cells", "skip"];

const fn default_repetitions() -> u32 {
    1
}

/// Parses a scenario's text; `name` is its default name. Relative paths are resolved against
/// `dir`.
///
/// # Errors
/// All faults in the text.
pub fn parse(
    text: &str,
    name: &str,
    dir: &Path,
    check_setting: SettingsCheck<'_>,
) -> Result<Campaign, Vec<Diagnostic>> {
    let locations = KeyLocations::parse(text)
        .map_err(|(line, message)| vec![Diagnostic { line, key: String::new(), message }])?;
    // Does not fail: the located parse has accepted the text.
    let mut base: Table =
        text.parse().map_err(|error: toml::de::Error| vec![diagnostic(error.message())])?;
    let mut head = Table::new();
    for key in HEAD_KEYS {
        if let Some(value) = base.remove(key) {
            head.insert(key.into(), value);
        }
    }
    let reader = ScenarioReader { locations: &locations, dir, check_setting };
    let head: FileHead = reader.deserialize(head, &[]).map_err(|fault| vec![fault])?;
    if head.repetitions == 0 {
        return Err(vec![reader.fault(
            &key_path(&["repetitions"]),
            &[],
            "0 would measure nothing",
        )]);
    }
    let (cells, mut faults) = cells(&locations, &head.levels, &head.cells);
    if cells.is_empty() && !head.levels.is_empty() {
        faults.push(reader.fault(&key_path(&["levels"]), &[], "no cell of [cells] uses them"));
    }
    if !cells.is_empty() && head.variants.contains_key(CELL_AXIS) {
        faults.push(reader.fault(
            &key_path(&["variants", CELL_AXIS]),
            &[],
            "the axis of [cells] has this name; rename yours",
        ));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut campaign = Campaign {
        name: head.name.clone().unwrap_or_else(|| name.to_owned()),
        description: head.about.clone(),
        repetitions: head.repetitions,
        seed: head.seed,
        cells,
        conditions: Vec::new(),
    };
    let (mut links, mut recordings) = (ValidLinks::default(), Recordings::default());
    let mut combinations = reader.combinations(&campaign, &head.variants);
    faults.extend(unused_skips(&locations, &head.skip, &combinations));
    combinations.retain(|combination| !head.skip.iter().any(|skip| combination.matches(skip)));
    for combination in combinations {
        let mut merged_table = base.clone();
        for overrides in combination.layers.iter().filter_map(|path| head.layer(path)) {
            merge_over(&mut merged_table, overrides);
        }
        match reader.read_scenario(merged_table, &combination, &mut links, &mut recordings) {
            Ok((scenario, fingerprint)) => {
                let name = combination.name;
                campaign.conditions.push(Condition { name, scenario, fingerprint });
            }
            Err(found) => faults.extend(found),
        }
    }
    faults.extend(reader.partial_hystart_fault(&campaign));
    faults.sort();
    faults.dedup();
    if faults.is_empty() { Ok(campaign) } else { Err(faults) }
}

fn diagnostic(what: &str) -> Diagnostic {
    Diagnostic { line: 1, key: String::new(), message: what.to_owned() }
}

fn key_path(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

/// Merges a variant's keys into the base. A table that names its `kind` replaces the other one: the
/// settings of one kind of server are meaningless to another.
fn merge_over(base: &mut Table, overrides: &Table) {
    for (key, value) in overrides {
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if !above.contains_key("kind") => {
                merge_over(below, above);
            }
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

struct ScenarioReader<'a> {
    locations: &'a KeyLocations<'a>,
    dir: &'a Path,
    check_setting: SettingsCheck<'a>,
}

impl ScenarioReader<'_> {
    /// Returns every combination of a cell, if there are any, and one variant of each axis, in the order of the
    /// file.
    fn combinations(&self, campaign: &Campaign, axes: &Levels) -> Vec<Combination> {
        let mut combinations = combinations(&campaign.cells);
        for axis in self.locations.keys(&["variants"]) {
            let names = self.locations.keys(&["variants", &axis]);
            if !axes.contains_key(&axis) || names.is_empty() {
                continue;
            }
            let extended = |combination: &Combination| {
                let axis = &axis;
                let add = |name: &String| combination.with_variant(axis, name);
                names.iter().map(add).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(extended).collect();
        }
        combinations
    }

    /// Deserializes and validates one combination.
    fn read_scenario(
        &self,
        merged_table: Table,
        combination: &Combination,
        links: &mut ValidLinks,
        recordings: &mut Recordings,
    ) -> Result<(Scenario, Fingerprint), Vec<Diagnostic>> {
        let mut scenario: Scenario =
            self.deserialize(merged_table, &combination.layers).map_err(|fault| vec![fault])?;
        // Serialization does not fail: a scenario is plain data with string keys.
        let scenario_json = serde_json::to_string(&as_published(&scenario)).unwrap_or_default();
        scenario.link = scenario.link.resolve_trace_paths(self.dir);
        let more = scenario.more_links.into_iter();
        scenario.more_links = more.map(|link| link.resolve_trace_paths(self.dir)).collect();
        let (script_digests, script_faults) = digest_scripts(&scenario, self.dir);
        let (recording_digests, recording_faults) = recordings.fill_in(&mut scenario, self.dir);
        for command in scenario.servers.values_mut().filter_map(|server| server.command.as_mut()) {
            command.fill_dir_placeholder(self.dir);
        }
        for command in scenario.clients.values_mut().filter_map(|client| client.command.as_mut()) {
            command.fill_dir_placeholder(self.dir);
        }
        let mut faults: Vec<_> = check::faults(&scenario, links)
            .into_iter()
            .chain(script_faults)
            .chain(recording_faults)
            .map(|(path, what)| self.fault(&path, &combination.layers, &what))
            .collect();
        self.check_settings(&scenario, &combination.layers, &mut faults);
        let file_digests = trace_digests(&scenario) + &script_digests + &recording_digests;
        let fingerprint = Fingerprint { scenario_json, file_digests };
        if faults.is_empty() { Ok((scenario, fingerprint)) } else { Err(faults) }
    }

    /// Reports a condition without HyStart setting if another one has it: it would run with the
    /// value of a concurrent trial, because the setting is machine-wide.
    fn partial_hystart_fault(&self, campaign: &Campaign) -> Option<Diagnostic> {
        let sets_hystart = |condition: &&Condition| condition.scenario.hosts.hystart().is_some();
        campaign.conditions.iter().find(sets_hystart)?;
        let without_hystart =
            campaign.conditions.iter().find(|condition| !sets_hystart(condition))?;
        let condition = &without_hystart.name;
        let what = format!(
            "it applies to the whole machine: set it for every condition or for none; \
             {condition} does not set it"
        );
        Some(self.fault(&key_path(&["hosts", "server", "hystart"]), &[], &what))
    }

    fn check_settings(
        &self,
        scenario: &Scenario,
        layers: &[Vec<String>],
        faults: &mut Vec<Diagnostic>,
    ) {
        let smig_servers =
            scenario.servers.iter().filter(|(_, server)| server.kind == ServerKind::Smig);
        for (name, server) in smig_servers {
            for (section, keys) in &server.settings {
                let section_path = key_path(&["servers", name, "settings", section]);
                let Value::Table(keys) = keys else {
                    faults.push(self.fault(
                        &section_path,
                        layers,
                        "a section is a table of settings",
                    ));
                    continue;
                };
                for (key, value) in keys {
                    let setting_table = Table::from_iter([(key.clone(), value.clone())]);
                    let text = Table::from_iter([(section.clone(), Value::Table(setting_table))])
                        .to_string();
                    if let Err(what) = (self.check_setting)(&text) {
                        let setting_path =
                            [section_path.as_slice(), std::slice::from_ref(key)].concat();
                        faults.push(self.fault(&setting_path, layers, &what));
                    }
                }
            }
        }
    }

    fn deserialize<'de, T: Deserialize<'de>>(
        &self,
        table: Table,
        layers: &[Vec<String>],
    ) -> Result<T, Diagnostic> {
        serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
            let mut path: Vec<String> = error.path().iter().filter_map(segment_key).collect();
            let message = error.inner().message().to_owned();
            if let Some(unknown) = unknown_key(&message)
                && path.last() != Some(&unknown)
            {
                path.push(unknown);
            }
            self.fault(&path, layers, &message)
        })
    }

    /// Reports a fault at the place of a key in the file: in one of the tables that override the base,
    /// otherwise in the base.
    fn fault(&self, path: &[String], layers: &[Vec<String>], message: &str) -> Diagnostic {
        let base_location = self.locations.find(path);
        let layer_locations = layers.iter().rev().map(|prefix| {
            let mut location = self.locations.find(&[prefix.as_slice(), path].concat());
            location.depth = location.depth.saturating_sub(prefix.len());
            location
        });
        let deepest = layer_locations.fold(base_location, |best, found| {
            if found.depth >= best.depth && found.depth > 0 { found } else { best }
        });
        Diagnostic {
            line: deepest.line,
            key: path.join("."),
            message: message.trim_end().to_owned(),
        }
    }
}

/// Returns the digests of the trace files of all links.
fn trace_digests(scenario: &Scenario) -> String {
    let links = std::iter::once(&scenario.link).chain(&scenario.more_links);
    let rates = links.flat_map(|link| [&link.to_client.rate, &link.to_server.rate]);
    let digest = |rate: &RateSpec| match rate {
        // An unreadable file has already been reported as a fault.
        RateSpec::Trace(file) => {
            Some(hex(&Sha256::digest(std::fs::read(file).unwrap_or_default())))
        }
        _ => None,
    };
    rates.filter_map(digest).collect()
}

/// Returns the digests of the files that the scenario's commands name, and the errors by key.
fn digest_scripts(scenario: &Scenario, dir: &Path) -> (String, Vec<(Vec<String>, String)>) {
    let (mut digests, mut faults) = (String::new(), Vec::new());
    let mut add = |section, name: &String, found: Result<String, String>| match found {
        Ok(found) => digests += &found,
        Err(what) => faults.push((key_path(&[section, name, "command"]), what)),
    };
    for (name, server) in &scenario.servers {
        if let Some(command) = &server.command {
            let others = command.environment.values().chain(command.files.values());
            add("servers", name, named_file_digests(&command.argv, others, dir));
        }
    }
    for (name, client) in &scenario.clients {
        if let Some(command) = &client.command {
            let others = command.environment.values();
            add("clients", name, named_file_digests(&command.argv, others, dir));
        }
    }
    (digests, faults)
}

fn segment_key(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Extracts the key from "unknown field `key`, ...".
fn unknown_key(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field `")?;
    rest.split_once('`').map(|(key, _)| key.to_owned())
}
