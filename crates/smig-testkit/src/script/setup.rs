//! What a scripted peer and the engine beside it start with.

use smig_proto::{AppId, Config, Identity, Security};

use super::frame::setting;

/// Who decides on JOINs: the driver's part at a server, the peer's part at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinAnswers {
    /// At once, by the rules.
    AtOnce,
    /// The script, by [`super::Peer::decide_join`], [`super::Peer::refuse_join`] or a frame.
    ByScript,
}

/// Choices of one script.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engine's configuration.
    pub config: Config,
    /// What protects each connection.
    pub security: Security,
    /// The next connections' identity.
    pub identity: Identity,
    /// The peer's first SETTINGS; a client's CID is added to it.
    pub settings: Vec<(u16, u32)>,
    /// The session's AppID.
    pub app: AppId,
    /// Who answers JOINs.
    pub joins: JoinAnswers,
}

impl Setup {
    /// TLS 1.3, and a peer that speaks the extension and sets nothing else.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            security: Security::Tls13,
            identity: Identity([7; 32]),
            settings: vec![(setting::SMIG, 16)],
            app: AppId::new(0x0102_0304_0506_0708),
            joins: JoinAnswers::AtOnce,
        }
    }

    /// The same with one more entry in the peer's first SETTINGS.
    #[must_use]
    pub fn setting(mut self, id: u16, value: u32) -> Self {
        self.settings.retain(|&(other, _)| other != id);
        self.settings.push((id, value));
        self
    }

    /// The same with JOINs answered by the script.
    #[must_use]
    pub const fn joins_by_script(mut self) -> Self {
        self.joins = JoinAnswers::ByScript;
        self
    }

    /// The same under another protection.
    #[must_use]
    pub const fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }
}
