//! The fields of a HAR entry that say what a page asked for. Tools leave out most of them; everything else in a file is skipped
//! while it is read, bodies too.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use smig_survey::{HarHeader, HarResponse};

use super::initiator::Initiator;

#[derive(Deserialize)]
pub(super) struct Har {
    pub(super) log: Log,
}

#[derive(Deserialize)]
pub(super) struct Log {
    #[serde(deserialize_with = "super::read::limited_entries")]
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(default)]
    pub(super) pageref: Option<String>,
    #[serde(default)]
    pub(super) started_date_time: Option<String>,
    #[serde(default)]
    pub(super) time: Option<f64>,
    pub(super) request: Request,
    pub(super) response: HarResponse,
    #[serde(default)]
    pub(super) timings: Option<Timings>,
    #[serde(default, rename = "serverIPAddress")]
    pub(super) server_ip: Option<String>,
    /// Identifies the connection, if the tool says which.
    #[serde(default, deserialize_with = "text_or_number")]
    pub(super) connection: Option<String>,
    #[serde(default, rename = "_resourceType")]
    resource_type: Option<String>,
    /// The name of the same in WebPageTest.
    #[serde(default, rename = "_request_type")]
    request_type: Option<String>,
    #[serde(default, rename = "_priority")]
    pub(super) priority: Option<String>,
    #[serde(default, rename = "_initiator", deserialize_with = "Initiator::deserialize_any")]
    pub(super) initiator: Option<Initiator>,
    /// The initiator as JSON in a text: sitespeed.io and WebPageTest.
    #[serde(
        default,
        rename = "_initiator_detail",
        deserialize_with = "Initiator::deserialize_text"
    )]
    pub(super) initiator_detail: Option<Initiator>,
    /// Whether it came out of a cache: Chromium writes which.
    #[serde(default, rename = "_fromCache", deserialize_with = "is_present")]
    pub(super) from_cache: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) url: String,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    headers: Option<Vec<HarHeader>>,
}

/// Phases in ms; -1 or absent if they do not apply.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Timings {
    #[serde(default)]
    blocked: Option<f64>,
    #[serde(default)]
    dns: Option<f64>,
    #[serde(default)]
    connect: Option<f64>,
    #[serde(default)]
    send: Option<f64>,
    #[serde(default)]
    wait: Option<f64>,
    #[serde(default)]
    receive: Option<f64>,
}

impl Entry {
    /// Returns what the browser calls it, if the tool has written that.
    pub(super) fn resource_type(&self) -> Option<&str> {
        self.resource_type.as_deref().or(self.request_type.as_deref())
    }

    /// Returns whether a browser does not wait for it: a script with this priority is `async` or `defer`.
    pub(super) fn has_low_priority(&self) -> bool {
        let low = ["low", "verylow", "lowest", "idle"];
        self.priority.as_ref().is_some_and(|name| low.contains(&name.to_ascii_lowercase().as_str()))
    }

    /// Returns the URL of the Referer field.
    pub(super) fn referer(&self) -> Option<&str> {
        let mut fields = self.request.headers.iter().flatten();
        fields.find(|field| field.name.eq_ignore_ascii_case("referer")).map(|f| f.value.as_str())
    }

    pub(super) fn method(&self) -> &str {
        self.request.method.as_deref().unwrap_or("GET")
    }

    /// Returns the time from its beginning to the first byte of its response, and to the last, in ms.
    pub(super) fn response_ms(&self) -> (f64, f64) {
        let total_ms = known(self.time);
        let Some(timings) = &self.timings else { return (total_ms, total_ms) };
        // `connect` includes `ssl`.
        let phases = [timings.blocked, timings.dns, timings.connect, timings.send, timings.wait];
        let first_ms: f64 = phases.into_iter().map(known).sum();
        (first_ms, (first_ms + known(timings.receive)).max(total_ms))
    }
}

/// Returns a time, 0 if it is absent or does not apply, a day at most.
fn known(ms: Option<f64>) -> f64 {
    ms.filter(|ms| *ms > 0.0).unwrap_or(0.0).min(86_400_000.0)
}

/// Returns an identifier that some tools write as a number; of anything else nothing.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Identifier {
        Text(String),
        Number(u64),
        Other(IgnoredAny),
    }
    Ok(match Identifier::deserialize(deserializer)? {
        Identifier::Text(text) => Some(text),
        Identifier::Number(number) => Some(number.to_string()),
        Identifier::Other(_) => None,
    })
}

/// Returns whether a key says something: it is there, and neither null, false nor an empty text.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Flag {
        Bool(bool),
        Text(String),
        Nothing(()),
        Other(IgnoredAny),
    }
    Ok(match Flag::deserialize(deserializer)? {
        Flag::Bool(flag) => flag,
        Flag::Text(text) => !text.is_empty(),
        Flag::Nothing(()) => false,
        Flag::Other(_) => true,
    })
}
