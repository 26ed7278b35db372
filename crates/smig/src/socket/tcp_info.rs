//! The kernel's `struct tcp_info`, as far as this project reads it.

/// `struct tcp_info` of Linux up to `tcpi_snd_wnd`. A kernel with a shorter one leaves the rest
/// zero. The names are those of tcp(7) without their prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpInfo {
    pub(crate) state: u8,
    pub(crate) ca_state: u8,
    pub(crate) retransmits: u8,
    pub(crate) probes: u8,
    pub(crate) backoff: u8,
    pub(crate) options: u8,
    /// Send window scale (low four bits) and receive window scale.
    pub(crate) window_scales: u8,
    /// Bit 0: the delivery rate was limited by the application.
    pub(crate) delivery_rate_app_limited: u8,
    pub(crate) rto: u32,
    pub(crate) ato: u32,
    pub(crate) snd_mss: u32,
    pub(crate) rcv_mss: u32,
    pub(crate) unacked: u32,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) retrans: u32,
    pub(crate) fackets: u32,
    pub(crate) last_data_sent: u32,
    pub(crate) last_ack_sent: u32,
    pub(crate) last_data_recv: u32,
    pub(crate) last_ack_recv: u32,
    pub(crate) pmtu: u32,
    pub(crate) rcv_ssthresh: u32,
    /// Smoothed round-trip time, microseconds.
    pub(crate) rtt: u32,
    pub(crate) rttvar: u32,
    pub(crate) snd_ssthresh: u32,
    pub(crate) snd_cwnd: u32,
    pub(crate) advmss: u32,
    pub(crate) reordering: u32,
    pub(crate) rcv_rtt: u32,
    pub(crate) rcv_space: u32,
    pub(crate) total_retrans: u32,
    pub(crate) pacing_rate: u64,
    pub(crate) max_pacing_rate: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) segs_out: u32,
    pub(crate) segs_in: u32,
    /// Bytes written and not yet sent for the first time.
    pub(crate) notsent_bytes: u32,
    /// Minimum round-trip time, microseconds.
    pub(crate) min_rtt: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) data_segs_out: u32,
    /// Bytes per second, most recent sample.
    pub(crate) delivery_rate: u64,
    pub(crate) busy_time: u64,
    pub(crate) rwnd_limited: u64,
    pub(crate) sndbuf_limited: u64,
    pub(crate) delivered: u32,
    pub(crate) delivered_ce: u32,
    /// Bytes of data sent, with those sent again.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) dsack_dups: u32,
    pub(crate) reord_seen: u32,
    /// Packets that arrived before an earlier one.
    pub(crate) rcv_ooopack: u32,
    pub(crate) snd_wnd: u32,
}

impl TcpInfo {
    /// Returns whether anything that was written is not acknowledged yet.
    pub(crate) const fn is_delivering(&self) -> bool {
        self.unacked > 0 || self.notsent_bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::TcpInfo;

    #[test]
    fn layout_is_the_kernels() {
        assert_eq!(core::mem::offset_of!(TcpInfo, rtt), 68);
        assert_eq!(core::mem::offset_of!(TcpInfo, pacing_rate), 104);
        assert_eq!(core::mem::offset_of!(TcpInfo, notsent_bytes), 144);
        assert_eq!(core::mem::offset_of!(TcpInfo, delivery_rate), 160);
        assert_eq!(core::mem::offset_of!(TcpInfo, bytes_sent), 200);
        assert_eq!(core::mem::offset_of!(TcpInfo, rcv_ooopack), 224);
        assert_eq!(size_of::<TcpInfo>(), 232);
    }
}
