//! Error codes on the wire (RFC 9113 section 7).

use core::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// An error code of RST_STREAM and GOAWAY.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
            /// A code that RFC 9113 does not define. It has no special effect, and is kept as it is.
            Unknown(u32),
        }

        impl ErrorCode {
            /// Returns the code for a number from the wire.
            #[must_use]
            pub const fn from_wire(value: u32) -> Self {
                match value {
                    $($value => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            /// Returns the code's number.
            #[must_use]
            pub const fn to_wire(self) -> u32 {
                match self {
                    $(Self::$name => $value,)*
                    Self::Unknown(other) => other,
                }
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Unknown(other) => write!(f, "unknown error {other:#x}"),
                }
            }
        }
    };
}

codes! {
    /// Graceful shutdown, no error.
    NoError = 0x0, "NO_ERROR";
    /// The protocol was violated.
    ProtocolError = 0x1, "PROTOCOL_ERROR";
    /// The endpoint failed.
    InternalError = 0x2, "INTERNAL_ERROR";
    /// A flow-control limit was exceeded.
    FlowControlError = 0x3, "FLOW_CONTROL_ERROR";
    /// SETTINGS were not acknowledged in time.
    SettingsTimeout = 0x4, "SETTINGS_TIMEOUT";
    /// A frame arrived for a stream that is half-closed or closed.
    StreamClosed = 0x5, "STREAM_CLOSED";
    /// A frame has an invalid size.
    FrameSizeError = 0x6, "FRAME_SIZE_ERROR";
    /// Refused before any processing; safe to retry.
    RefusedStream = 0x7, "REFUSED_STREAM";
    /// The stream is no longer wanted.
    Cancel = 0x8, "CANCEL";
    /// The field section compression context cannot be maintained.
    CompressionError = 0x9, "COMPRESSION_ERROR";
    /// The connection of a CONNECT tunnel to its target failed.
    ConnectError = 0xa, "CONNECT_ERROR";
    /// The peer causes excessive load.
    EnhanceYourCalm = 0xb, "ENHANCE_YOUR_CALM";
    /// TLS does not meet the minimum requirements.
    InadequateSecurity = 0xc, "INADEQUATE_SECURITY";
    /// HTTP/1.1 is required.
    Http11Required = 0xd, "HTTP_1_1_REQUIRED";
}
