//! How a host's TCP is set up.

/// How a host's TCP is set up. The default is Linux's own, with what is left
/// over from earlier connections forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    pub(super) congestion_control: Option<String>,
    pub(super) initial_window: Option<u32>,
    pub(super) sysctls: Vec<(String, String)>,
}

impl Default for HostSpec {
    fn default() -> Self {
        let host = Self { congestion_control: None, initial_window: None, sysctls: Vec::new() };
        host.sysctl("ipv4/tcp_no_metrics_save", "1")
            .send_buffer(4_096, 16_384, 4_194_304)
            .receive_buffer(4_096, 131_072, 6_291_456)
    }
}

impl HostSpec {
    /// The congestion control of every connection to the peer that does not
    /// choose its own: `cubic`, `bbr`, `reno`, as the kernel has them. Unless
    /// set it is `cubic`, whatever the machine's own is.
    #[must_use]
    pub fn congestion_control(mut self, name: &str) -> Self {
        self.congestion_control = Some(name.to_owned());
        self
    }

    /// The initial congestion window, in segments.
    #[must_use]
    pub const fn initial_window(mut self, segments: u32) -> Self {
        self.initial_window = Some(segments);
        self
    }

    /// Least, initial and largest send buffer (`tcp_wmem`), in bytes.
    #[must_use]
    pub fn send_buffer(self, least: u64, initial: u64, most: u64) -> Self {
        self.sysctl("ipv4/tcp_wmem", &format!("{least} {initial} {most}"))
    }

    /// Least, initial and largest receive buffer (`tcp_rmem`), in bytes.
    #[must_use]
    pub fn receive_buffer(self, least: u64, initial: u64, most: u64) -> Self {
        self.sysctl("ipv4/tcp_rmem", &format!("{least} {initial} {most}"))
    }

    /// Any file below `/proc/sys/net` that belongs to a namespace, for example
    /// `ipv4/tcp_sack`. A later value replaces an earlier one.
    #[must_use]
    pub fn sysctl(mut self, name: &str, value: &str) -> Self {
        self.sysctls.retain(|(earlier, _)| earlier != name);
        self.sysctls.push((name.to_owned(), value.to_owned()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_sysctl_replaces_an_earlier_one() {
        let spec = HostSpec::default().send_buffer(1, 2, 3).send_buffer(4, 5, 6);
        let wmem: Vec<_> =
            spec.sysctls.iter().filter(|(name, _)| name == "ipv4/tcp_wmem").collect();
        assert_eq!(wmem, [&("ipv4/tcp_wmem".to_owned(), "4 5 6".to_owned())]);
    }
}
