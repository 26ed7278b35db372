//! How many files this process may open: each connection is one, and one more behind a gateway.

use rustix::process::{Resource, getrlimit, setrlimit};

/// RLIMIT_NOFILE, raised as far as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    /// `None`: as many as there is memory for.
    limit: Option<u64>,
}

impl OpenFiles {
    /// Raises the limit. Ten thousand connections need more than the usual soft one.
    pub(crate) fn raise() -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current < limit.maximum || limit.current.is_some() && limit.maximum.is_none() {
            limit.current = limit.maximum;
            // The system's limit is what there is then.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        Self { limit: getrlimit(Resource::Nofile).current }
    }

    /// What an operator wants to know of it: for how many connections it is enough, each with `each` files.
    pub(crate) fn report(self, max_connections: usize, each: u64) -> String {
        let Some(limit) = self.limit else { return "open files: no limit".to_owned() };
        let wanted = u64::try_from(max_connections).unwrap_or(u64::MAX).saturating_mul(each);
        if limit > wanted {
            return format!("open files: {limit} at most");
        }
        format!(
            "open files: {limit} at most, which is fewer than {max_connections} connections need \
             ({wanted}): who comes when they are used up waits. Raise the hard limit (ulimit -Hn; \
             LimitNOFILE= for systemd) or lower server.max_connections"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_are_told_with_what_to_do() {
        let report = |limit, each| OpenFiles { limit }.report(1000, each);
        assert_eq!(report(Some(2001), 2), "open files: 2001 at most");
        assert_eq!(report(None, 2), "open files: no limit");
        let few = report(Some(2000), 2);
        assert!(few.contains("2000 at most") && few.contains("LimitNOFILE"), "{few}");
    }
}
