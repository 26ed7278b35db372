//! TCP settings of the two hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smig_testbed::netns::SubflowUse;

use super::value::{Size, TimeSpan};

/// Settings of the two hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hosts {
    /// Host of the servers.
    pub server: HostSettings,
    /// Host of the clients.
    pub client: HostSettings,
}

impl Hosts {
    /// Returns whether CUBIC is to use HyStart; `None` if the scenario does not set it.
    #[must_use]
    pub fn hystart(&self) -> Option<bool> {
        self.server.hystart.or(self.client.hystart)
    }
}

/// TCP settings of one host; the defaults are Linux's, except that congestion control is `cubic`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// `cubic`, `bbr`, `reno`, as the kernel names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Initial congestion window in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Minimum, default and maximum send buffer (`tcp_wmem`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<[Size; 3]>,
    /// Minimum, default and maximum receive buffer (`tcp_rmem`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<[Size; 3]>,
    /// Selective acknowledgements (`tcp_sack`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// `TCP_NOTSENT_LOWAT` for sockets that do not set their own (`tcp_notsent_lowat`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_sent_low_water: Option<Size>,
    /// Whether CUBIC uses HyStart. The setting is machine-wide, so it applies to both hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// Clients' host: MPTCP connections get a subflow over each further link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subflows: Option<SubflowUse>,
    /// Servers' host: the processes run for part of the time only, as on an overloaded machine; always if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Option<Starvation>,
    /// Files below `/proc/sys/net`, such as `"ipv4/tcp_ecn" = "1"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
}

/// Part of the time for which processes run; for the rest they are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starvation {
    /// Time for which they run in each period.
    pub runs: TimeSpan,
    /// The period.
    pub every: TimeSpan,
}

/// One of the two hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostRole {
    /// The servers' host.
    #[default]
    Server,
    /// The clients' host.
    Client,
}
