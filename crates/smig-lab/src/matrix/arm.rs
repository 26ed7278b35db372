//! The arms: their names in the scenario, in display order.

/// What an arm is compared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The objects without the download: times are relative to it.
    Reference,
    /// What anybody can have without smig's pace or migration.
    Baseline,
    /// One ordinary connection, paced: judged, and a baseline for migration.
    Paced,
    /// Migration: judged.
    Moved,
    /// For information: another server, or half of a method.
    Other,
}

/// One way to transfer the objects of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// Name in the scenario.
    pub key: &'static str,
    /// Name in the picture, in two lines.
    pub label: [&'static str; 2],
    /// What it is.
    pub about: &'static str,
    /// What it is compared for.
    pub role: Role,
}

const ARMS: [Arm; 12] = [
    arm("alone", ["alone", ""], "the objects without the download", Role::Reference),
    arm("off", ["all", "off"], "one connection, everything off", Role::Baseline),
    arm("lowat", ["little", "unsent"], "one connection with little unsent data", Role::Baseline),
    arm("http1", ["HTTP/1.1", "six"], "six HTTP/1.1 connections", Role::Baseline),
    arm("paced", ["one,", "paced"], "one ordinary connection, paced", Role::Paced),
    arm("moved", ["moved,", "paced"], "moved to its own connection and paced", Role::Moved),
    arm("moved-unpaced", ["moved,", "unpaced"], "moved, not paced", Role::Other),
    arm("pool", ["two,", "unpaced"], "two connections", Role::Other),
    arm("pool-paced", ["two,", "paced"], "two connections, paced", Role::Other),
    arm(
        "http3",
        ["HTTP/3", "Go"],
        "HTTP/3 by quic-go, with its own congestion control",
        Role::Other,
    ),
    arm("nginx", ["nginx", "tuned"], "nginx with little unsent data", Role::Other),
    arm("h2o", ["h2o", "tuned"], "h2o with its latency optimisation and priorities", Role::Other),
];

const fn arm(key: &'static str, label: [&'static str; 2], about: &'static str, role: Role) -> Arm {
    Arm { key, label, about, role }
}

/// Returns the arms in display order.
#[must_use]
pub const fn arms() -> &'static [Arm] {
    &ARMS
}

impl Arm {
    /// Returns the arm of this name.
    #[must_use]
    pub fn by_key(key: &str) -> Option<&'static Self> {
        ARMS.iter().find(|arm| arm.key == key)
    }

    /// Returns whether this arm is one of those that `judged` must not be worse than.
    #[must_use]
    pub fn is_baseline_of(&self, judged: &Self) -> bool {
        self.role == Role::Baseline || self.role == Role::Paced && judged.role == Role::Moved
    }

    /// Returns whether a report judges it.
    #[must_use]
    pub const fn is_judged(&self) -> bool {
        matches!(self.role, Role::Paced | Role::Moved)
    }
}
