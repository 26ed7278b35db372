//! Names of settings of `smig serve` at the time when the published results were measured.
//!
//! A result belongs to the trial with its hash, and the hash is made from the scenario as it is written. Trials
//! that set these keys are hashed with their earlier names, so that the published results stay results of the same
//! trials. Nothing else reads the earlier names.

use toml::{Table, Value};

use super::spec::Scenario;

/// Section and key now, and at the time of the published results.
const PUBLISHED_KEYS: [([&str; 2], [&str; 2]); 7] = [
    (["migration", "mode"], ["policy", "migrate"]),
    (["migration", "min_concurrent"], ["policy", "min_concurrent"]),
    (["migration", "min_transfer_time"], ["policy", "max_blocking"]),
    (["migration", "max_bulk_deferral"], ["policy", "max_hold"]),
    (["migration", "pace_bulk"], ["policy", "pace_bulk"]),
    (["interactive", "notsent_lowat"], ["interactive", "not_sent_low_water"]),
    (["bulk", "notsent_lowat"], ["bulk", "not_sent_low_water"]),
];

/// Returns a scenario as it was written at the time of the published results.
pub(super) fn as_published(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    for server in scenario.servers.values_mut() {
        server.settings = with_published_keys(&server.settings);
    }
    scenario
}

fn with_published_keys(settings: &Table) -> Table {
    let mut published_settings = Table::new();
    for (section, keys) in settings {
        let Value::Table(keys) = keys else {
            published_settings.insert(section.clone(), keys.clone());
            continue;
        };
        for (key, value) in keys {
            let renaming = PUBLISHED_KEYS.iter().find(|(now, _)| *now == [section, key]);
            let [section, key] =
                renaming.map_or([section.as_str(), key], |(_, published)| *published);
            let entry =
                published_settings.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(table) = entry {
                table.insert(key.to_owned(), value.clone());
            }
        }
    }
    pace_without_migration(&mut published_settings);
    published_settings
}

/// Without the extension, `pace_bulk` had no effect: a key of its own paced connections without migrated streams.
fn pace_without_migration(published_settings: &mut Table) {
    let is_without_extension = published_settings
        .get("smig")
        .and_then(|section| section.get("enabled"))
        .is_some_and(|enabled| enabled.as_bool() == Some(false));
    if is_without_extension
        && let Some(Value::Table(policy)) = published_settings.get_mut("policy")
        && policy.get("pace_bulk").and_then(Value::as_bool) == Some(true)
    {
        policy.insert("pace_bulk".to_owned(), false.into());
        policy.insert("pace_unmoved".to_owned(), true.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_with_their_earlier_names() {
        let current_settings: Table =
            "migration = { mode = 'never', min_size = 5 }\nbulk = { notsent_lowat = 0 }\n\
                          server = { workers = 2 }"
                .parse()
                .unwrap();
        let earlier_settings: Table =
            "policy = { migrate = 'never' }\nmigration = { min_size = 5 }\n\
                              bulk = { not_sent_low_water = 0 }\nserver = { workers = 2 }"
                .parse()
                .unwrap();
        assert_eq!(with_published_keys(&current_settings), earlier_settings);
        assert_eq!(with_published_keys(&earlier_settings), earlier_settings);
    }

    #[test]
    fn one_paced_connection_was_another_key() {
        let settings: Table =
            "smig = { enabled = false }\nmigration = { pace_bulk = true }".parse().unwrap();
        let earlier: Table =
            "smig = { enabled = false }\npolicy = { pace_bulk = false, pace_unmoved = true }"
                .parse()
                .unwrap();
        assert_eq!(with_published_keys(&settings), earlier);
        let with_extension: Table = "migration = { pace_bulk = true }".parse().unwrap();
        let earlier: Table = "policy = { pace_bulk = true }".parse().unwrap();
        assert_eq!(with_published_keys(&with_extension), earlier);
    }
}
