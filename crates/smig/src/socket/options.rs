//! Setting and reading socket options. Failures are tolerated.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::{Dscp, SocketOptions, TcpInfo, sys};

/// The lower-effort code point (RFC 8622 section 3), at the position of the DSCP in the TOS byte.
const LOWER_EFFORT_TOS: u32 = 0b00_0001 << 2;

static CONGESTION: OptionCheck = OptionCheck::new("TCP_CONGESTION");
static KEEPALIVE: OptionCheck = OptionCheck::new("SO_KEEPALIVE");

/// The value of TCP_NOTSENT_LOWAT that stands for the system's default.
const SYSTEM_NOTSENT_LOWAT: u32 = 0;
/// SO_MAX_PACING_RATE without a limit.
const NO_PACING_RATE: u64 = u64::MAX;

/// The options that the role of a connection has set on its socket, so that the next role can undo them.
#[derive(Debug)]
pub(crate) struct RoleOptions {
    current: SocketOptions,
    /// The algorithm before a role set another. There is no value that stands for the system's default.
    system_congestion_control: Option<Vec<u8>>,
}

impl Default for RoleOptions {
    fn default() -> Self {
        Self { current: SocketOptions::SYSTEM, system_congestion_control: None }
    }
}

impl RoleOptions {
    /// Applies a role's options. An option that it leaves to the system becomes the system's again.
    pub(crate) fn apply(&mut self, tcp: &TcpStream, options: &SocketOptions) {
        static NODELAY: OptionCheck = OptionCheck::new("TCP_NODELAY");

        let before = core::mem::replace(&mut self.current, options.clone());
        let socket = SockRef::from(tcp);
        NODELAY.check(socket.set_tcp_nodelay(true));
        if let Some(bytes) =
            value_or_system(options.notsent_lowat, before.notsent_lowat, SYSTEM_NOTSENT_LOWAT)
        {
            set_notsent_lowat(tcp, bytes);
        }
        match &options.congestion_control {
            Some(name) => self.set_congestion_control(&socket, name),
            None => self.restore_congestion_control(tcp),
        }
        if let Some(rate) = value_or_system(options.pacing_rate, before.pacing_rate, NO_PACING_RATE)
        {
            set_pacing_rate(tcp, rate);
        }
        set_timeouts(&socket, options, &before);
        if options.dscp != before.dscp {
            set_dscp(tcp, options.dscp);
        }
    }

    fn set_congestion_control(&mut self, socket: &SockRef<'_>, name: &str) {
        if self.system_congestion_control.is_none() {
            self.system_congestion_control = socket.tcp_congestion().ok();
        }
        CONGESTION.check(socket.set_tcp_congestion(name.as_bytes()));
    }

    /// Returns to the system's congestion control. A socket that leaves its session needs it: the options of the next
    /// session find the system's value in the socket.
    pub(crate) fn restore_congestion_control(&mut self, tcp: &TcpStream) {
        if let Some(name) = self.system_congestion_control.take() {
            CONGESTION.check(SockRef::from(tcp).set_tcp_congestion(&name));
        }
    }
}

/// Returns what to set: the role's value or, if only the role before had one, the system's.
fn value_or_system<T>(value: Option<T>, before: Option<T>, system: T) -> Option<T> {
    value.or_else(|| before.map(|_| system))
}

fn set_timeouts(socket: &SockRef<'_>, options: &SocketOptions, before: &SocketOptions) {
    static USER_TIMEOUT: OptionCheck = OptionCheck::new("TCP_USER_TIMEOUT");

    let keepalive = |options: &SocketOptions| options.user_timeout.or(options.keepalive_timeout);
    match (keepalive(options), keepalive(before)) {
        (Some(limit), _) => set_keepalive(socket, limit),
        (None, Some(_)) => KEEPALIVE.check(socket.set_keepalive(false)),
        (None, None) => {}
    }
    if options.user_timeout.is_some() || before.user_timeout.is_some() {
        // None is the system's.
        USER_TIMEOUT.check(socket.set_tcp_user_timeout(options.user_timeout));
    }
}

fn set_dscp(tcp: &TcpStream, dscp: Dscp) {
    static MARK: OptionCheck = OptionCheck::new("IP_TOS or IPV6_TCLASS");

    let tos = match dscp {
        Dscp::Default => 0,
        Dscp::LowerEffort => LOWER_EFFORT_TOS,
    };
    let socket = SockRef::from(tcp);
    let is_v4 = tcp.local_addr().is_ok_and(|addr| addr.ip().to_canonical().is_ipv4());
    MARK.check(if is_v4 { socket.set_tos_v4(tos) } else { socket.set_tclass_v6(tos) });
}

/// Enables keepalive, so that the kernel probes a silent peer, and closes the connection if it does not answer.
fn set_keepalive(socket: &SockRef<'_>, limit: Duration) {
    // Idle for half of the limit, then probes for the other half.
    let second = Duration::from_secs(1);
    let (idle, interval) = ((limit / 2).max(second), (limit / 8).max(second));
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(4);
    KEEPALIVE.check(socket.set_tcp_keepalive(&keepalive));
}

/// The largest window of TCP (RFC 7323 section 2.3).
const MAX_WINDOW_CLAMP_BYTES: u64 = 1 << 30;

/// Sets TCP_NOTSENT_LOWAT, bytes.
pub(crate) fn set_notsent_lowat(tcp: &TcpStream, bytes: u32) {
    static LOW_WATER: OptionCheck = OptionCheck::new("TCP_NOTSENT_LOWAT");
    LOW_WATER.check(SockRef::from(tcp).set_tcp_notsent_lowat(bytes));
}

/// Sets SO_MAX_PACING_RATE, bytes per second.
pub(crate) fn set_pacing_rate(tcp: &TcpStream, rate: u64) {
    static PACING: OptionCheck = OptionCheck::new("SO_MAX_PACING_RATE");
    PACING.check(sys::set_max_pacing_rate(tcp.as_fd(), rate));
}

/// Sets TCP_WINDOW_CLAMP: the receive window is at most this many bytes. The kernel may raise the bound when it enlarges
/// the buffer.
pub(crate) fn set_window_clamp(tcp: &TcpStream, bytes: u64) {
    static CLAMP: OptionCheck = OptionCheck::new("TCP_WINDOW_CLAMP");
    let bytes = bytes.min(MAX_WINDOW_CLAMP_BYTES) as libc::c_int;
    CLAMP.check(sys::set_window_clamp(tcp.as_fd(), bytes));
}

/// Makes the next close an RST that discards unsent and unread data: otherwise the rest of a cancelled stream
/// would still be sent (spec/smig.md section 8).
pub(crate) fn reset_on_close(tcp: &TcpStream) {
    static LINGER: OptionCheck = OptionCheck::new("SO_LINGER");
    LINGER.check(SockRef::from(tcp).set_linger(Some(Duration::ZERO)));
}

/// Returns TCP_INFO; `None` if it cannot be read.
pub(crate) fn tcp_info(tcp: &TcpStream) -> Option<TcpInfo> {
    static INFO: OptionCheck = OptionCheck::new("TCP_INFO");
    let info = sys::tcp_info(tcp.as_fd());
    match info {
        Ok(info) => Some(info),
        Err(error) => {
            INFO.check(Err(error));
            None
        }
    }
}

/// An option whose failure is logged only the first time.
struct OptionCheck {
    name: &'static str,
    logged: AtomicBool,
}

impl OptionCheck {
    const fn new(name: &'static str) -> Self {
        Self { name, logged: AtomicBool::new(false) }
    }

    fn check(&self, result: io::Result<()>) {
        if let Err(error) = result
            && !self.logged.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(option = self.name, %error, "socket option failed, continuing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(addr), listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    #[tokio::test]
    async fn the_options_of_a_role_are_set_on_the_socket() {
        let (client, _server) = pair().await;
        let mut role_options = RoleOptions::default();
        role_options.apply(&client, &SocketOptions::bulk());
        let socket = SockRef::from(&client);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tos_v4().unwrap(), LOWER_EFFORT_TOS);
        let mut options = SocketOptions::bulk();
        options.congestion_control = Some("no such algorithm".into());
        options.user_timeout = Some(Duration::from_secs(30));
        role_options.apply(&client, &options);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_user_timeout().unwrap(), options.user_timeout);
    }

    /// A peer that pauses leaves its receive buffer full, which TCP_USER_TIMEOUT counts as dead.
    #[tokio::test]
    async fn keepalive_timeout_sets_keepalive_and_no_user_timeout() {
        let (client, _server) = pair().await;
        let mut options = SocketOptions::interactive();
        options.keepalive_timeout = Some(Duration::from_secs(60));
        RoleOptions::default().apply(&client, &options);
        let socket = SockRef::from(&client);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }

    #[tokio::test]
    async fn tcp_info_counts_received_bytes() {
        let (client, server) = pair().await;
        client.writable().await.unwrap();
        assert_eq!(client.try_write(b"hello").unwrap(), 5);
        server.readable().await.unwrap();
        let info = tcp_info(&server).unwrap();
        assert_eq!(info.bytes_received, 5);
    }
}
