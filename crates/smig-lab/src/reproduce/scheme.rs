//! The schemes: their names in the paper or ours, in display order.

use smig_chart::svg::Colour;

/// A way to transfer small and big objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scheme {
    /// Its name in the scenarios.
    pub(super) key: &'static str,
    /// Its name in charts.
    pub(super) label: &'static str,
    /// Its description.
    pub(super) about: &'static str,
    pub(super) colour: Colour,
}

const fn scheme(
    key: &'static str,
    label: &'static str,
    about: &'static str,
    colour: Colour,
) -> Scheme {
    Scheme { key, label, about, colour }
}

const ALL: &[Scheme] = &[
    scheme("NoMig", "NoMig", "plain HTTP/2, one connection", Colour::Vermilion),
    scheme("Http2", "HTTP/2", "plain HTTP/2, one connection", Colour::Vermilion),
    scheme("nginxHttp2", "HTTP/2, nginx", "the same with nginx", Colour::Vermilion),
    scheme("Closed", "HTTP/2, closed", "plain HTTP/2, the connection is closed", Colour::Slate),
    scheme("nginx", "HTTP/2, nginx", "plain HTTP/2 with nginx", Colour::Vermilion),
    scheme("MigSW", "MigSW", "the server migrates the whole response", Colour::Blue),
    scheme("MigSP", "MigSP", "the server migrates it after 100 KB", Colour::Blue),
    scheme("MigCP", "MigCP", "the client migrates it after 100 KB", Colour::Blue),
    scheme("Existing", "moved, existing", "migrated to an idle connection", Colour::Blue),
    scheme("New", "moved, new", "migrated to a new connection", Colour::Blue),
    scheme("SMig", "smig serve", "smig serve with its defaults", Colour::Teal),
    scheme("Lowat", "NOTSENT_LOWAT", "HTTP/2 with TCP_NOTSENT_LOWAT 16 KiB", Colour::Purple),
    scheme(
        "LowatPriorities",
        "…with RFC 9218",
        "the same, the client sends priorities",
        Colour::Purple,
    ),
    scheme(
        "OnePaced",
        "…and paced",
        "one connection, RFC 9218, paced like the connection of a migrated stream",
        Colour::Purple,
    ),
    scheme(
        "nginxLowat",
        "nginx, NOTSENT_LOWAT",
        "nginx, TCP_NOTSENT_LOWAT 16 KiB by sysctl",
        Colour::Vermilion,
    ),
    scheme("Http1", "HTTP/1.1", "HTTP/1.1, six connections", Colour::Slate),
    scheme("Https", "HTTPS", "HTTP/1.1 over TLS, six connections", Colour::Slate),
    scheme("nginxHttps", "HTTPS, nginx", "the same with nginx", Colour::Slate),
    scheme("Pool", "two connections", "HTTP/2, big files on a second connection", Colour::Slate),
    scheme(
        "PoolPaced",
        "…and paced",
        "the same, each connection paced near the rate of the path",
        Colour::Slate,
    ),
    scheme(
        "h2o",
        "h2o, untuned",
        "h2o, latency optimisation up to the default of 65,535 bytes in flight, here exceeded",
        Colour::Amber,
    ),
    scheme(
        "h2oTuned",
        "h2o, tuned",
        "h2o, latency optimisation with any number of bytes in flight",
        Colour::Amber,
    ),
];

/// The paper's three migration schemes.
pub(super) const MOVING: [&str; 3] = ["MigSW", "MigSP", "MigCP"];

/// Returns all keys in display order.
pub(super) fn order() -> Vec<&'static str> {
    ALL.iter().map(|scheme| scheme.key).collect()
}

/// Returns the scheme of this key; `None` if it is unknown.
pub(super) fn named(key: &str) -> Option<&'static Scheme> {
    ALL.iter().find(|scheme| scheme.key == key)
}

pub(super) fn label(key: &str) -> String {
    named(key).map_or_else(|| key.to_owned(), |scheme| scheme.label.to_owned())
}

pub(super) fn colour(key: &str) -> Colour {
    named(key).map_or(Colour::Slate, |scheme| scheme.colour)
}

/// Returns the labels with their descriptions, each once.
pub(super) fn shown() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|scheme| (scheme.label, scheme.about))
}
