//! Causes of errors, and their mapping to the error code that is sent to the peer.

use core::fmt;

use super::ErrorCode;

macro_rules! causes {
    ($($name:ident => $code:ident, $text:literal;)*) => {
        /// The cause of an error. Each cause has one error code and one sentence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each variant's sentence is its Display text")]
        pub enum Cause {
            $($name,)*
        }

        impl Cause {
            /// Returns the code that RST_STREAM or GOAWAY carries for this cause.
            #[must_use]
            pub const fn code(self) -> ErrorCode {
                match self {
                    $(Self::$name => ErrorCode::$code,)*
                }
            }
        }

        impl Cause {
            /// Returns whether a local limit was exceeded, as opposed to a protocol violation.
            pub(crate) const fn is_limit(self) -> bool {
                let timeout =
                    matches!(self, Self::SlowPreface | Self::SettingsTimeout | Self::JoinTimeout);
                timeout || matches!(self.code(), ErrorCode::EnhanceYourCalm)
            }

            /// Returns the sentence that describes the cause.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        impl fmt::Display for Cause {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.describe())
            }
        }
    };
}

causes! {
    // Framing.
    BadPreface => ProtocolError, "the connection preface is wrong (RFC 9113 section 3.4)";
    FirstFrameNotSettings => ProtocolError, "the first frame is not SETTINGS (RFC 9113 section 3.4)";
    FrameTooLong => FrameSizeError, "frame longer than SETTINGS_MAX_FRAME_SIZE (RFC 9113 section 4.2)";
    FrameSize => FrameSizeError, "frame of a wrong length for its type (RFC 9113 section 4.2)";
    FrameOnStreamZero => ProtocolError, "frame needs a stream but is on stream 0 (RFC 9113 section 6)";
    FrameNotOnStreamZero => ProtocolError, "frame belongs on stream 0 (RFC 9113 section 6)";
    PaddingTooLong => ProtocolError, "padding longer than the payload (RFC 9113 section 6.1)";
    SelfDependency => ProtocolError, "a stream depends on itself (RFC 7540 section 5.3.1)";
    ExpectedContinuation => ProtocolError, "a header block was interrupted (RFC 9113 section 6.10)";
    UnexpectedContinuation => ProtocolError, "CONTINUATION without a header block (RFC 9113 section 6.10)";
    ZeroIncrement => ProtocolError, "WINDOW_UPDATE of 0 (RFC 9113 section 6.9)";
    // Streams.
    IdleStream => ProtocolError, "frame on an idle stream (RFC 9113 section 5.1)";
    StreamClosed => StreamClosed, "frame on a closed stream (RFC 9113 section 5.1)";
    HalfClosed => StreamClosed, "frame after END_STREAM (RFC 9113 section 5.1)";
    WrongStreamParity => ProtocolError, "stream id of the wrong side (RFC 9113 section 5.1.1)";
    StreamIdNotIncreasing => ProtocolError, "stream id not above the last one (RFC 9113 section 5.1.1)";
    TooManyStreams => RefusedStream, "more streams than SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 section 5.1.2)";
    DataBeforeHeaders => ProtocolError, "DATA before HEADERS (RFC 9113 section 8.1)";
    PriorityUpdateFromServer => ProtocolError, "PRIORITY_UPDATE from a server (RFC 9218 section 7.1)";
    TrailersWithoutEnd => ProtocolError, "trailers without END_STREAM (RFC 9113 section 8.1)";
    GoingAway => RefusedStream, "the connection is going away (RFC 9113 section 6.8)";
    PushDisabled => ProtocolError, "push is disabled (RFC 9113 section 8.4)";
    ParentEnded => RefusedStream, "push for a request that has ended (RFC 9113 section 8.4)";
    BadPush => ProtocolError, "push on a stream or with an id that allows none (RFC 9113 section 8.4)";
    // Flow control.
    ConnectionWindowExceeded => FlowControlError, "DATA beyond the connection's window (RFC 9113 section 6.9.1)";
    StreamWindowExceeded => FlowControlError, "DATA beyond the stream's window (RFC 9113 section 6.9.1)";
    WindowOverflow => FlowControlError, "flow-control window above 2^31-1 (RFC 9113 section 6.9.1)";
    // SETTINGS.
    BadInitialWindow => FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1 (RFC 9113 section 6.5.2)";
    BadMaxFrameSize => ProtocolError, "SETTINGS_MAX_FRAME_SIZE out of range (RFC 9113 section 6.5.2)";
    BadEnablePush => ProtocolError, "SETTINGS_ENABLE_PUSH is not allowed here (RFC 9113 section 6.5.2)";
    BadConnectProtocol => ProtocolError, "SETTINGS_ENABLE_CONNECT_PROTOCOL not 0 or 1, or withdrawn (RFC 8441 section 3)";
    UnexpectedSettingsAck => ProtocolError, "SETTINGS ACK without SETTINGS (RFC 9113 section 6.5)";
    SettingsTimeout => SettingsTimeout, "SETTINGS not acknowledged in time (RFC 9113 section 6.5.3)";
    // Field blocks and messages.
    Compression => CompressionError, "header block cannot be decoded (RFC 7541)";
    MalformedField => ProtocolError, "malformed field (RFC 9113 section 8.2.1)";
    ConnectionField => ProtocolError, "connection-specific field (RFC 9113 section 8.2.2)";
    BadPseudo => ProtocolError, "pseudo-header field missing, repeated, misplaced or wrong (RFC 9113 section 8.3)";
    ConnectProtocolDisabled => ProtocolError, "extended CONNECT, which was not announced (RFC 8441 section 3)";
    InformationalWithEnd => ProtocolError, "1xx response with END_STREAM (RFC 9113 section 8.1)";
    BadContentLength => ProtocolError, "content-length is wrong or differs from the DATA (RFC 9113 section 8.1.1)";
    BadAuthority => ProtocolError, "host and :authority differ, or hold userinfo (RFC 9113 section 8.3.1)";
    HeadersTooLarge => EnhanceYourCalm, "header section larger than allowed";
    TooManyFields => EnhanceYourCalm, "header section with more fields than allowed";
    // Overload (RFC 9113 section 10.5).
    TooManyContinuations => EnhanceYourCalm, "too many CONTINUATION frames";
    HeaderBlockTooLarge => EnhanceYourCalm, "header block larger than allowed";
    TooManyInformational => EnhanceYourCalm, "too many 1xx responses to one request";
    TooManyEmptyFrames => EnhanceYourCalm, "too many empty frames in a row";
    TooManyReplies => EnhanceYourCalm, "too many unsent replies: read faster";
    TooManySettings => EnhanceYourCalm, "too many SETTINGS";
    TooManyResets => EnhanceYourCalm, "too many streams were reset";
    TooManyPriorityFrames => EnhanceYourCalm, "too many consecutive PRIORITY frames";
    TooManyPriorityUpdates => EnhanceYourCalm, "too many PRIORITY_UPDATE for idle streams";
    TooManySmallDataFrames => EnhanceYourCalm, "the window forces too many small DATA frames";
    Stalled => Cancel, "no progress for too long";
    SlowPreface => NoError, "no connection preface in time";
    SlowHeaders => EnhanceYourCalm, "header block not finished in time";
    // SMig (spec/smig.md).
    BadCid => ProtocolError, "the CID settings are missing, zero, changed or not the session's";
    UnexpectedJoin => ProtocolError, "unexpected JOIN";
    TooManyJoins => EnhanceYourCalm, "three refused JOINs";
    JoinTimeout => SettingsTimeout, "JOIN not answered in time";
    BadServerProof => ProtocolError, "the server's proof in JOIN ACK is wrong";
    BadMigrate => ProtocolError, "MIGRATE that is not permitted here";
    UnexpectedMigrateAck => ProtocolError, "answer to a MIGRATE that was not sent";
    CarrierWindowExceeded => FlowControlError, "unbound carrier holds more than a stream's window";
    TooManyCarrierSections => EnhanceYourCalm, "unbound carrier holds too many header sections";
    TooManyCarrierFrames => EnhanceYourCalm, "carrier holds too many frames before its barrier";
    BadReceipt => ProtocolError, "RECEIPT that falls, or counts frames that were never sent";
    BadResume => ProtocolError, "RESUME that is not permitted here, or claims what was never sent";
    NeverProcessed => RefusedStream, "the client has resumed the stream before its request came";
    ConnectionForbidden => NoError, "the client has given the connection up before it joined";
    SessionForgotten => Cancel, "the server has forgotten the session in which the stream could be resumed";
    Lingered => Cancel, "not resumed in time";
    NotKept => Cancel, "what would have to be sent again is kept no more";
    AnswerTimeout => Cancel, "MIGRATE not answered in time";
    CarrierMisuse => ProtocolError, "frame that an unbound carrier may not receive";
    // Local errors.
    ConnectionLost => Cancel, "the connection ended";
    BodyLengthMismatch => InternalError, "the body is shorter or longer than its content-length";
    Internal => InternalError, "internal error";
}
