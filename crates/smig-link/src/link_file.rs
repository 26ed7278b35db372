//! A link in files: the name of a profile, or a table with an entry for each direction.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};

use super::{DirectionSpec, LinkSpec, Profile};

/// The table form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    both: Option<DirectionSpec>,
    to_client: Option<DirectionSpec>,
    to_server: Option<DirectionSpec>,
}

impl<'de> Deserialize<'de> for LinkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LinkVisitor)
    }
}

struct LinkVisitor;

impl<'de> Visitor<'de> for LinkVisitor {
    type Value = LinkSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profile's name, or a table with to_client and to_server, or with both")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<LinkSpec, E> {
        match Profile::by_name(name) {
            Some(profile) => Ok(profile.spec),
            None => {
                let names: Vec<_> = Profile::all().iter().map(|profile| profile.name).collect();
                let names = names.join(", ");
                Err(E::custom(format!("{name:?} is not a link profile; profiles: {names}")))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LinkSpec, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        let missing = || Error::custom("a link needs [to_client] and [to_server], or [both]");
        let both = table.both;
        let mut to_client = table.to_client.or_else(|| both.clone()).ok_or_else(missing)?;
        let mut to_server = table.to_server.or(both).ok_or_else(missing)?;
        let round_trip = to_client.delay + to_server.delay;
        for direction in [&mut to_client, &mut to_server] {
            direction.resolve_queue(round_trip).ok_or_else(|| {
                Error::custom("queue.bdp needs a known rate; with a trace, use queue.packets")
            })?;
        }
        Ok(LinkSpec { to_client, to_server })
    }
}
