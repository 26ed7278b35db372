//! What a connection is for.

/// Purpose of a connection; the driver tunes its socket accordingly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionRole {
    /// New streams are opened here.
    #[default]
    Interactive,
    /// Large transfers were migrated here.
    Bulk,
}
