//! Limit of open files: each connection takes one descriptor, and one more behind a gateway.

use rustix::process::{Resource, getrlimit, setrlimit};

/// RLIMIT_NOFILE, raised to its hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFilesLimit {
    /// `None`: unlimited.
    limit: Option<u64>,
}

impl OpenFilesLimit {
    /// Raises the soft limit to the hard limit: 10,000 connections need more than the usual soft limit.
    pub(crate) fn raise() -> Self {
        let mut rlimit = getrlimit(Resource::Nofile);
        if rlimit.current < rlimit.maximum || rlimit.current.is_some() && rlimit.maximum.is_none() {
            rlimit.current = rlimit.maximum;
            // On failure the current limit stays.
            let _ = setrlimit(Resource::Nofile, rlimit);
        }
        Self { limit: getrlimit(Resource::Nofile).current }
    }

    /// Describes whether the limit suffices for `max_connections` of `per_connection` descriptors.
    pub(crate) fn describe(self, max_connections: usize, per_connection: u64) -> String {
        let Some(limit) = self.limit else { return "open files: no limit".to_owned() };
        let needed_descriptors =
            u64::try_from(max_connections).unwrap_or(u64::MAX).saturating_mul(per_connection);
        if limit > needed_descriptors {
            return format!("open files: {limit} at most");
        }
        format!(
            "open files: {limit} at most, but {max_connections} connections need {needed_descriptors}; when they \
             are used up, new connections wait. Raise the hard limit (ulimit -Hn; LimitNOFILE= in \
             systemd) or lower server.max_connections"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_reported_with_advice() {
        let report =
            |limit, per_connection| OpenFilesLimit { limit }.describe(1000, per_connection);
        assert_eq!(report(Some(2001), 2), "open files: 2001 at most");
        assert_eq!(report(None, 2), "open files: no limit");
        let few = report(Some(2000), 2);
        assert!(few.contains("2000 at most") && few.contains("LimitNOFILE"), "{few}");
    }
}
