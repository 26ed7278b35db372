//! A cell in words, short enough for a row of the picture.

use std::collections::BTreeMap;

/// Axis, level, and words for levels whose names in the scenario are not words. A level with empty words is left out.
const WORDS: [(&str, &str, &str); 25] = [
    ("queue", "q1", "1\u{d7}"),
    ("queue", "half", "\u{bd}\u{d7}"),
    ("queue", "q4", "4\u{d7}"),
    ("queue", "q16", "16\u{d7}"),
    ("loss", "none", ""),
    ("loss", "few", "0.1 % loss"),
    ("loss", "some", "1 % loss"),
    ("loss", "bursts", "bursts"),
    ("access", "wired", ""),
    ("access", "wifi", "Wi-Fi"),
    ("access", "lte", "LTE"),
    ("access", "thin", "thin ACKs"),
    ("hystart", "on", ""),
    ("hystart", "off", "no HyStart"),
    ("window", "iw10", ""),
    ("window", "iw40", "IW 40"),
    ("process", "runs", ""),
    ("cross", "none", ""),
    ("cross", "constant", "+ 30 %"),
    ("work", "steady", ""),
    ("work", "page", "pages"),
    ("work", "three", "3 files"),
    ("work", "mb1", "1 MB"),
    ("work", "mb10", "10 MB"),
    ("work", "mb50", "50 MB"),
];

/// Axes in the order of the label; rate and round-trip time come first.
const AXES: [&str; 9] =
    ["queue", "control", "loss", "access", "hystart", "window", "process", "cross", "work"];

/// Returns a cell's levels in words: rate in Mbit/s, round-trip time, queue in bandwidth-delay products, congestion control,
/// and the other levels that have words.
pub(super) fn label(levels: &BTreeMap<String, String>) -> String {
    let level = |axis: &str| levels.get(axis).map_or("", String::as_str);
    let rate = level("rate").trim_start_matches('r');
    let round_trip = level("rtt").trim_start_matches('t');
    let mut words = vec![format!("{rate} M"), format!("{round_trip} ms")];
    for axis in AXES {
        let name = level(axis);
        let known = WORDS.iter().find(|(other, level, _)| *other == axis && *level == name);
        let word = known.map_or(name, |(_, _, word)| word);
        let is_neighbour = axis == "cross" && known.is_none() && !word.is_empty();
        words.push(if is_neighbour { format!("+ {word}") } else { word.to_owned() });
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}
