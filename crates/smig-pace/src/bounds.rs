//! What bounds the bulk of a session.

/// What all bulk of a session together may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes per second; `u64::MAX` is no limit.
    pub rate: u64,
    /// Bytes of the session that may be framed and not acknowledged; `u64::MAX` is no limit. Where the path suddenly
    /// slows down, a rate alone goes on filling it.
    pub max_outstanding: u64,
    /// Bytes that the socket may hold unsent, because the process may not run when they are due. If there are any, the
    /// kernel must pace them (SO_MAX_PACING_RATE), at `path_rate` at least. They are a part of `max_outstanding`.
    pub write_ahead: u64,
    /// The estimate of the path's rate, bytes per second.
    pub path_rate: u64,
}

impl Bounds {
    /// No bound.
    pub const NONE: Self =
        Self { rate: u64::MAX, max_outstanding: u64::MAX, write_ahead: 0, path_rate: u64::MAX };
}
