//! Which of several links a client uses.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::faults::Faults;
use super::spec::Scenario;

/// The word for all links.
const ALL: &str = "all";

/// Which link a client uses. In files: its number, or `"all"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLink {
    /// Counted from 0: `link`, then those of `more_links`.
    Number(usize),
    /// It connects to the server's address that all links lead to: over the first one that is up, and over all of them by MPTCP.
    All,
}

impl Default for ClientLink {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl ClientLink {
    /// Returns whether it is the first link.
    #[must_use]
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }
}

/// Reports a link that the scenario does not have.
pub(super) fn check_link_number(
    path: &str,
    number: usize,
    scenario: &Scenario,
    faults: &mut Faults,
) {
    let last = scenario.more_links.len();
    if number > last {
        faults.add(path, format!("there are links 0 to {last}: link and more_links"));
    }
}

impl Serialize for ClientLink {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => number.serialize(serializer),
            Self::All => ALL.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ClientLink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LinkVisitor)
    }
}

struct LinkVisitor;

impl de::Visitor<'_> for LinkVisitor {
    type Value = ClientLink;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of a link, from 0, or \"all\"")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<ClientLink, E> {
        let number = usize::try_from(number);
        number.map(ClientLink::Number).map_err(|_| E::custom("there is no such link"))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<ClientLink, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ClientLink, E> {
        match text {
            ALL => Ok(ClientLink::All),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}
