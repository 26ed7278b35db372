//! SETTINGS parameters (RFC 9113 section 6.5.2, RFC 8441, RFC 9218) and SMig's code points.

/// SMig's code points: experimental, to be configured together (spec/smig.md section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePoints {
    /// SETTINGS_SMIG.
    pub settings_smig: u16,
    /// SETTINGS_SMIG_CID_HI; `_MID` and `_LO` are the next two numbers.
    pub settings_cid: u16,
    /// Frame type MIGRATE.
    pub migrate: u8,
    /// Frame type JOIN.
    pub join: u8,
    /// SETTINGS_SMIG_RESUME (spec/resumption.md, as are the next three).
    pub settings_resume: u16,
    /// Frame type LOST.
    pub lost: u8,
    /// Frame type RESUME.
    pub resume: u8,
    /// Frame type RECEIPT.
    pub receipt: u8,
}

impl Default for CodePoints {
    fn default() -> Self {
        Self {
            settings_smig: 0xf5e1,
            settings_cid: 0xf5e2,
            migrate: 0xf5,
            join: 0xf6,
            settings_resume: 0xf5e6,
            lost: 0xf7,
            resume: 0xf8,
            receipt: 0xf9,
        }
    }
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    HeaderTableSize(u32),
    EnablePush(u32),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
    MaxFrameSize(u32),
    MaxHeaderListSize(u32),
    EnableConnectProtocol(u32),
    NoRfc7540Priorities(u32),
    Smig(u32),
    CidHi(u32),
    CidMid(u32),
    CidLo(u32),
    Resume(u32),
    /// Any other parameter; ignored (RFC 9113 section 6.5.2).
    Unknown,
}

impl Setting {
    fn from_wire(id: u16, value: u32, code_points: &CodePoints) -> Self {
        match id {
            0x1 => Self::HeaderTableSize(value),
            0x2 => Self::EnablePush(value),
            0x3 => Self::MaxConcurrentStreams(value),
            0x4 => Self::InitialWindowSize(value),
            0x5 => Self::MaxFrameSize(value),
            0x6 => Self::MaxHeaderListSize(value),
            0x8 => Self::EnableConnectProtocol(value),
            0x9 => Self::NoRfc7540Priorities(value),
            _ if id == code_points.settings_smig => Self::Smig(value),
            _ if id == code_points.settings_cid => Self::CidHi(value),
            _ if id == code_points.settings_cid.wrapping_add(1) => Self::CidMid(value),
            _ if id == code_points.settings_cid.wrapping_add(2) => Self::CidLo(value),
            _ if id == code_points.settings_resume => Self::Resume(value),
            _ => Self::Unknown,
        }
    }

    /// Returns identifier and value as they are written.
    pub(crate) fn to_wire(self, code_points: &CodePoints) -> (u16, u32) {
        match self {
            Self::HeaderTableSize(v) => (0x1, v),
            Self::EnablePush(v) => (0x2, v),
            Self::MaxConcurrentStreams(v) => (0x3, v),
            Self::InitialWindowSize(v) => (0x4, v),
            Self::MaxFrameSize(v) => (0x5, v),
            Self::MaxHeaderListSize(v) => (0x6, v),
            Self::EnableConnectProtocol(v) => (0x8, v),
            Self::NoRfc7540Priorities(v) => (0x9, v),
            Self::Smig(v) => (code_points.settings_smig, v),
            Self::CidHi(v) => (code_points.settings_cid, v),
            Self::CidMid(v) => (code_points.settings_cid.wrapping_add(1), v),
            Self::CidLo(v) => (code_points.settings_cid.wrapping_add(2), v),
            Self::Resume(v) => (code_points.settings_resume, v),
            Self::Unknown => (0, 0),
        }
    }
}

/// The payload of a SETTINGS frame: complete entries of six bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingsPayload<'a>(&'a [u8]);

impl<'a> SettingsPayload<'a> {
    /// Wraps a payload; `None` if its length is not a multiple of 6.
    pub(crate) fn new(payload: &'a [u8]) -> Option<Self> {
        payload.len().is_multiple_of(6).then_some(Self(payload))
    }

    pub(crate) fn entry_count(self) -> usize {
        self.0.len() / 6
    }

    pub(crate) fn iter(self, code_points: CodePoints) -> impl Iterator<Item = Setting> + 'a {
        self.0.as_chunks::<6>().0.iter().map(move |&[i0, i1, v0, v1, v2, v3]| {
            Setting::from_wire(
                u16::from_be_bytes([i0, i1]),
                u32::from_be_bytes([v0, v1, v2, v3]),
                &code_points,
            )
        })
    }
}
