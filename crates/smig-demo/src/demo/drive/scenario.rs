//! The demonstration as a campaign of one trial for each variant: `scenarios/demo.toml`, with the options' values.

use std::path::Path;

use smig_lab::scenario::{Campaign, Size, TimeSpan, Trial, parse};
use toml::{Table, Value};

use super::{DemoError, DemoOptions};
use crate::demo::data::Variant;

/// The axis of the variants.
const VARIANT_AXIS: &str = "scheme";
/// Names in the scenario.
pub(super) const SMALL_TRANSFER: &str = "small";
pub(super) const BIG_TRANSFER: &str = "big";

impl DemoOptions {
    /// Returns the trials in the order of the runs.
    pub(super) fn trials(&self) -> Result<Vec<(Variant, Trial)>, DemoError> {
        let trials = self.campaign()?.trials();
        let trial = |variant: &Variant| {
            let is_named =
                |trial: &&Trial| trial.id.condition.level(VARIANT_AXIS) == Some(variant.name());
            trials.iter().find(is_named).map(|trial| (*variant, trial.clone()))
        };
        Ok(self.variants.iter().filter_map(trial).collect())
    }

    fn campaign(&self) -> Result<Campaign, DemoError> {
        let scenario_error = |cause: String| DemoError::Scenario(cause);
        let mut file: Table = include_str!("../../../../../scenarios/demo.toml")
            .parse()
            .map_err(|error: toml::de::Error| scenario_error(error.to_string()))?;
        for (path, value) in self.overrides().map_err(|error| scenario_error(error.to_string()))? {
            insert_at_path(&mut file, &path, value);
        }
        // Server settings are not checked here: the server checks them when it starts.
        parse_scenario(&file.to_string(), "demo").map_err(scenario_error)
    }

    /// Returns the values that replace those of the file, with their keys.
    fn overrides(&self) -> Result<Vec<(Vec<&'static str>, Value)>, toml::ser::Error> {
        const SERVER_SETTINGS_PATH: [&str; 3] = ["servers", "server", "settings"];
        let congestion_control = || Value::from(self.congestion_control.clone());
        let interval = self.object_interval;
        let big_start = interval * self.unloaded_objects + interval / 4;
        let small_path = |key| vec!["workload", "transfers", SMALL_TRANSFER, key];
        let big_path = |key| vec!["workload", "transfers", BIG_TRANSFER, key];
        let mut values = vec![
            (vec!["link"], Value::try_from(&self.link)?),
            (vec!["hosts", "server", "congestion_control"], congestion_control()),
            (vec!["hosts", "client", "congestion_control"], congestion_control()),
            (
                [&SERVER_SETTINGS_PATH[..], &["migration", "max_bulk_deferral"]].concat(),
                duration_value(self.max_bulk_deferral)?,
            ),
            (small_path("size"), Value::try_from(Size(self.object_bytes))?),
            (small_path("start"), duration_value(interval)?),
            (small_path("every"), duration_value(interval)?),
            (big_path("size"), Value::try_from(Size(self.big_file_bytes))?),
            (big_path("start"), duration_value(big_start)?),
            (vec!["record", "progress"], duration_value(interval)?),
        ];
        if let Some(name) = &self.bulk_congestion_control {
            let path = [&SERVER_SETTINGS_PATH[..], &["bulk", "congestion_control"]].concat();
            values.push((path, Value::from(name.clone())));
        }
        Ok(values)
    }
}

/// Parses a scenario. The error is the list of its faults.
pub(crate) fn parse_scenario(text: &str, name: &str) -> Result<Campaign, String> {
    parse(text, name, Path::new("/"), &|_| Ok(())).map_err(|faults| {
        let faults: Vec<_> = faults.into_iter().map(|fault| fault.message).collect();
        faults.join("; ")
    })
}

fn duration_value(time: std::time::Duration) -> Result<Value, toml::ser::Error> {
    Value::try_from(TimeSpan(time))
}

/// Sets a value and creates the tables on its path.
fn insert_at_path(table: &mut Table, path: &[&str], value: Value) {
    let Some((key, remaining_path)) = path.split_first() else { return };
    if remaining_path.is_empty() {
        table.insert((*key).to_owned(), value);
        return;
    }
    let inner = table.entry(*key).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = inner {
        insert_at_path(inner, remaining_path, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use smig_lab::scenario::{ClientKind, load};
    use smig_link::Rate;

    use super::*;

    const CLIENT_NAME: &str = "user";

    #[test]
    fn the_file_has_the_default_options() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/demo.toml");
        let file = load(&path, &|_| Ok(())).unwrap();
        let generated = DemoOptions::default().campaign().unwrap();
        let scenarios = |campaign: &Campaign| -> BTreeMap<_, _> {
            let conditions = campaign.conditions.iter();
            conditions.map(|one| (one.name.clone(), one.scenario.clone())).collect()
        };
        assert_eq!(scenarios(&file), scenarios(&generated));
    }

    #[test]
    fn options_reach_the_trials() {
        let mut options = DemoOptions {
            variants: vec![Variant::Smig, Variant::PlainHttp2],
            bulk_congestion_control: Some("bbr".into()),
            object_interval: Duration::from_millis(100),
            unloaded_objects: 3,
            big_file_bytes: 1_500_000,
            max_bulk_deferral: Duration::ZERO,
            ..DemoOptions::default()
        };
        options.link.to_client.rate = Rate::mbit(3).into();
        let trials = options.trials().unwrap();
        let variants: Vec<_> = trials.iter().map(|(variant, _)| *variant).collect();
        assert_eq!(variants, options.variants);
        let scenario = &trials[0].1.scenario;
        assert_eq!(scenario.link, options.link);
        assert_eq!(scenario.clients[CLIENT_NAME].kind, ClientKind::Smig);
        let big = &scenario.workload.transfers[BIG_TRANSFER];
        assert_eq!((big.size_of(0), big.start.0), (1_500_000, Duration::from_millis(325)));
        let settings = scenario.servers["server"].settings.to_string();
        assert!(
            settings.contains("bbr") && settings.contains("max_bulk_deferral = \"0\""),
            "{settings}"
        );
        assert_eq!(trials[1].1.scenario.clients[CLIENT_NAME].kind, ClientKind::H2);
    }
}
