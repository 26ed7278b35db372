//! What is compared: the route from the browser to the server, and the variants on it.

use std::fmt;

use serde::{Deserialize, Serialize};
use smig_chart::svg::Colour;

use crate::demo::{Variant, colour};

/// The route from the browser to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// One ordinary HTTP/2 connection of the browser, with the page and the download.
    Direct,
    /// Through `smig agent` and `smig gateway`; another program downloads.
    Agent,
}

/// The variant of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrowserVariant {
    /// HTTP/2 with nothing tuned.
    PlainHttp2,
    /// The same with `TCP_NOTSENT_LOWAT` on the socket of the server, or of the gateway.
    NotsentLowat,
    /// Agent and gateway with the extension; as they are by default, except that the gateway's paced streams move.
    Smig,
    /// `smig serve` as it is by default, for a browser without the extension.
    Serve,
    /// `smig gateway` as it is by default, for a browser without the extension.
    Gateway,
    /// nginx.
    Nginx,
}

impl Route {
    /// Returns the variants that are compared by default, in the order of the runs.
    #[must_use]
    pub const fn default_variants(self) -> &'static [BrowserVariant] {
        use BrowserVariant::{Gateway, NotsentLowat, PlainHttp2, Serve, Smig};
        match self {
            Self::Direct => &[PlainHttp2, NotsentLowat, Serve, Gateway],
            Self::Agent => &[PlainHttp2, Smig],
        }
    }

    /// Returns whether a variant exists on this route.
    #[must_use]
    pub const fn has(self, variant: BrowserVariant) -> bool {
        match variant {
            BrowserVariant::PlainHttp2 | BrowserVariant::NotsentLowat => true,
            BrowserVariant::Smig => matches!(self, Self::Agent),
            BrowserVariant::Serve | BrowserVariant::Gateway | BrowserVariant::Nginx => {
                matches!(self, Self::Direct)
            }
        }
    }
}

impl BrowserVariant {
    /// All variants, of both routes.
    pub const ALL: [Self; 6] =
        [Self::PlainHttp2, Self::NotsentLowat, Self::Smig, Self::Serve, Self::Gateway, Self::Nginx];

    /// Returns the display name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::PlainHttp2 => Variant::PlainHttp2.title(),
            Self::NotsentLowat => Variant::NotsentLowat.title(),
            Self::Smig => Variant::Smig.title(),
            Self::Serve => "smig serve",
            Self::Gateway => "smig gateway",
            Self::Nginx => "nginx",
        }
    }

    /// Returns a short display name.
    #[must_use]
    pub const fn short_title(self) -> &'static str {
        match self {
            Self::PlainHttp2 => Variant::PlainHttp2.short_title(),
            Self::NotsentLowat => Variant::NotsentLowat.short_title(),
            _ => self.title(),
        }
    }

    pub(super) const fn colour(self) -> Colour {
        match self {
            Self::PlainHttp2 => colour(Variant::PlainHttp2),
            Self::NotsentLowat => colour(Variant::NotsentLowat),
            Self::Smig | Self::Serve => colour(Variant::Smig),
            Self::Gateway => Colour::Teal,
            Self::Nginx => Colour::Amber,
        }
    }
}

impl fmt::Display for BrowserVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_variants_exist_on_their_route() {
        for route in [Route::Direct, Route::Agent] {
            assert!(route.default_variants().iter().all(|&variant| route.has(variant)));
        }
        assert!(!Route::Direct.has(BrowserVariant::Smig));
        assert!(!Route::Agent.has(BrowserVariant::Serve));
    }
}
