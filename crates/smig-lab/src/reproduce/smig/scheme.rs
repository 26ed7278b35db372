//! The schemes: their names in the paper or ours, in display order. They are data, in `claims/schemes.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use smig_chart::svg::Colour;

/// A way to transfer small and big objects.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Scheme {
    /// Its name in the scenarios.
    pub(super) key: String,
    /// Its name in charts.
    pub(super) label: String,
    /// Its description.
    pub(super) about: String,
    #[serde(with = "ColourName")]
    pub(super) colour: Colour,
}

/// The colours by name. `Colour` itself does not implement `Deserialize`.
#[derive(Deserialize)]
#[serde(remote = "Colour", rename_all = "kebab-case")]
enum ColourName {
    Vermilion,
    Purple,
    Blue,
    Slate,
    Amber,
    Teal,
    Ink,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Schemes {
    schemes: Vec<Scheme>,
}

/// The file is part of the program, and every test that makes a report parses it.
static SCHEMES: LazyLock<Vec<Scheme>> = LazyLock::new(|| {
    let parsed = toml::from_str::<Schemes>(include_str!("../../../claims/schemes.toml"));
    parsed.unwrap_or_else(|error| panic!("claims/schemes.toml: {error}")).schemes
});

/// The paper's three migration schemes.
pub(super) const MIGRATION_SCHEMES: [&str; 3] = ["MigSW", "MigSP", "MigCP"];

/// Returns all keys in display order.
pub(super) fn keys() -> Vec<&'static str> {
    SCHEMES.iter().map(|scheme| scheme.key.as_str()).collect()
}

/// Returns the scheme of this key; `None` if it is unknown.
pub(in super::super) fn by_key(key: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.key == key)
}

pub(super) fn label(key: &str) -> String {
    by_key(key).map_or_else(|| key.to_owned(), |scheme| scheme.label.clone())
}

pub(super) fn colour(key: &str) -> Colour {
    by_key(key).map_or(Colour::Slate, |scheme| scheme.colour)
}

/// Returns the label and description of each scheme.
pub(in super::super) fn descriptions() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCHEMES.iter().map(|scheme| (scheme.label.as_str(), scheme.about.as_str()))
}
