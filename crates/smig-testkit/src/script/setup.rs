//! Initial conditions of a script, for the peer and the engine.

use smig_proto::{AppId, Config, Identity, Security};

use super::frame::setting;

/// What answers JOINs: the driver at a server, the peer at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinAnswers {
    /// They are answered automatically and correctly.
    Automatic,
    /// The script, with [`super::Peer::decide_join`], [`super::Peer::refuse_join`] or a frame.
    Scripted,
}

/// Parameters of a script.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engine's configuration.
    pub config: Config,
    /// The security of each connection.
    pub security: Security,
    /// The identity of the next connections.
    pub identity: Identity,
    /// The peer's first SETTINGS; a client's CID is added to them.
    pub settings: Vec<(u16, u32)>,
    /// The session's AppID.
    pub app_id: AppId,
    /// What answers JOINs.
    pub join_answers: JoinAnswers,
}

/// Initial value of SETTINGS_MAX_FRAME_SIZE (RFC 9113 section 6.5.2).
const DEFAULT_MAX_FRAME_SIZE: u32 = 16_384;

impl Setup {
    /// Returns parameters with TLS 1.3 and a peer that supports the extension and sets nothing
    /// else.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            security: Security::Tls13,
            identity: Identity([7; 32]),
            settings: vec![(setting::SMIG, 16)],
            app_id: AppId::new(0x0102_0304_0506_0708),
            join_answers: JoinAnswers::Automatic,
        }
    }

    /// Sets an entry in the peer's first SETTINGS.
    #[must_use]
    pub fn with_setting(mut self, id: u16, value: u32) -> Self {
        self.settings.retain(|&(other, _)| other != id);
        self.settings.push((id, value));
        self
    }

    /// Returns the peer's SETTINGS_MAX_FRAME_SIZE.
    pub(super) fn max_frame_size(&self) -> u32 {
        let setting = self.settings.iter().find(|(id, _)| *id == setting::MAX_FRAME_SIZE);
        setting.map_or(DEFAULT_MAX_FRAME_SIZE, |&(_, size)| size)
    }

    /// Lets the script answer JOINs.
    #[must_use]
    pub const fn with_scripted_joins(mut self) -> Self {
        self.join_answers = JoinAnswers::Scripted;
        self
    }

    /// Sets the security of the connections.
    #[must_use]
    pub const fn with_security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }
}
