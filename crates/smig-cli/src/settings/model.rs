//! Fields that the settings of `smig serve` set.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use http::HeaderValue;
use smig_admin::access_log::AccessLogFormat;
use smig_files::{FileOptions, HiddenFiles, Listing, PrecompressedFiles, Symlinks};
use smig_settings::ServerSettings;
use smig_settings::entry::show_list;
use smig_settings::value::parse_addresses;

/// Default port.
pub(crate) const DEFAULT_PORT: u16 = 8443;

/// Listen addresses of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddresses {
    /// Both loopback addresses at the default port; IPv6 is left out where the machine has none.
    Default,
    /// Explicit addresses.
    At(Vec<SocketAddr>),
}

/// Whether connections use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenSecurity {
    Tls,
    Cleartext,
    /// Cleartext on which streams may migrate too.
    TrustedCleartext,
}

/// All settings of `smig serve`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) server: ServerSettings,
    pub(crate) root: Option<PathBuf>,
    pub(crate) listen: ListenAddresses,
    pub(crate) security: ListenSecurity,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) access_log: AccessLogFormat,
    pub(crate) files: FileOptions,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerSettings::default(),
            root: None,
            listen: ListenAddresses::Default,
            security: ListenSecurity::Tls,
            certificate: None,
            key: None,
            hosts: Vec::new(),
            access_log: AccessLogFormat::Off,
            files: FileOptions::default(),
        }
    }
}

/// Reads and sets the shared settings like this program's own.
impl Deref for Settings {
    type Target = ServerSettings;

    fn deref(&self) -> &ServerSettings {
        &self.server
    }
}

impl DerefMut for Settings {
    fn deref_mut(&mut self) -> &mut ServerSettings {
        &mut self.server
    }
}

/// Parses listen addresses.
pub(super) fn parse_listen(texts: &[String]) -> Result<ListenAddresses, String> {
    let mut addrs = Vec::new();
    for text in texts {
        addrs.extend(parse_addresses(text)?);
    }
    Ok(ListenAddresses::At(addrs))
}

pub(super) fn show_listen(listen: &ListenAddresses) -> String {
    let texts = match listen {
        ListenAddresses::Default => vec![format!("localhost:{DEFAULT_PORT}")],
        ListenAddresses::At(addrs) => addrs.iter().map(ToString::to_string).collect(),
    };
    show_list(&texts)
}

pub(super) const HIDDEN_VALUES: [(&str, HiddenFiles); 2] =
    [("refuse", HiddenFiles::Refuse), ("serve", HiddenFiles::Serve)];
pub(super) const SYMLINK_VALUES: [(&str, Symlinks); 3] =
    [("refuse", Symlinks::Refuse), ("inside", Symlinks::Inside), ("follow", Symlinks::Follow)];
pub(super) const LISTING_VALUES: [(&str, Listing); 2] =
    [("off", Listing::Off), ("on", Listing::On)];
pub(super) const PRECOMPRESSED_VALUES: [(&str, PrecompressedFiles); 2] =
    [("serve", PrecompressedFiles::Serve), ("ignore", PrecompressedFiles::Ignore)];

/// Parses a header field value; the empty string means none.
pub(super) fn parse_field_value(text: &str) -> Result<Option<HeaderValue>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    HeaderValue::from_str(text)
        .map(Some)
        .map_err(|_| format!("{text:?} has characters that a field value cannot have"))
}
