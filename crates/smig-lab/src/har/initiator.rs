//! Who asked for a resource: what tools write about it, in three notations.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// The most nested stacks that are looked at: asynchronous calls have one each.
const MAX_STACKS: usize = 64;

/// Who asked for a resource, as URLs: the likeliest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Initiator(pub(super) Vec<String>);

/// `_initiator` as Chromium writes it.
#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    stack: Option<Stack>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stack {
    #[serde(default)]
    call_frames: Vec<CallFrame>,
    #[serde(default)]
    parent: Option<Box<Self>>,
}

#[derive(Deserialize)]
struct CallFrame {
    #[serde(default)]
    url: Option<String>,
}

/// The notations. What has another one says nothing, and is no fault: the key is no part of HAR 1.2.
#[derive(Deserialize)]
#[serde(untagged)]
enum Notation {
    Url(String),
    Detail(Detail),
    Other(IgnoredAny),
}

impl Initiator {
    pub(super) fn deserialize_any<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        Ok(Self::from_notation(Notation::deserialize(deserializer)?))
    }

    /// Reads the notation out of a text.
    pub(super) fn deserialize_text<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        Ok(match Notation::deserialize(deserializer)? {
            Notation::Url(text) => serde_json::from_str(&text).ok().and_then(Self::from_notation),
            other => Self::from_notation(other),
        })
    }

    fn from_notation(notation: Notation) -> Option<Self> {
        let urls = match notation {
            Notation::Url(url) => vec![url],
            Notation::Detail(detail) => detail.urls(),
            Notation::Other(_) => Vec::new(),
        };
        let urls: Vec<_> = urls.into_iter().filter(|url| !url.is_empty()).collect();
        (!urls.is_empty()).then_some(Self(urls))
    }
}

impl Detail {
    /// The innermost call first: that script has run.
    fn urls(self) -> Vec<String> {
        let (mut urls, mut stack) = (Vec::new(), self.stack.map(Box::new));
        for _ in 0..MAX_STACKS {
            let Some(current) = stack else { break };
            let called = current.call_frames.into_iter().filter_map(|frame| frame.url);
            urls.extend(called.filter(|url| !url.is_empty()));
            stack = current.parent;
        }
        urls.extend(self.url);
        urls.dedup();
        urls
    }
}
