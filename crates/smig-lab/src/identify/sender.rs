//! A sender on this machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const HYSTART_SUFFIX: &str = "-hystart";

/// A sender by its congestion control. As in the paper, `cubic` is CUBIC without HyStart, and `cubic-hystart` is Linux's default.
/// Any other name is the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sender(String);

impl Sender {
    /// Returns the sender that a server with this congestion control is: the kernel's CUBIC has HyStart, and the lab has one without it.
    ///
    /// # Errors
    /// It is no name of a congestion control.
    pub fn of_server(congestion_control: &str) -> Result<Self, String> {
        match congestion_control {
            "cubic" => "cubic-hystart",
            "cubic_nohs" => "cubic",
            other => other,
        }
        .parse()
    }

    /// Returns the kernel's name of the congestion control.
    #[must_use]
    pub fn congestion_control(&self) -> &str {
        self.0.strip_suffix(HYSTART_SUFFIX).unwrap_or(&self.0)
    }

    /// Returns whether HyStart must be on or off; `None` if the congestion control has none.
    #[must_use]
    pub fn hystart(&self) -> Option<bool> {
        (self.congestion_control() == "cubic").then(|| self.0.ends_with(HYSTART_SUFFIX))
    }
}

impl FromStr for Sender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        // TCP_CA_NAME_MAX, with the final zero.
        const MAX_NAME: usize = 15;
        let sender = Self(name.to_owned());
        let kernel_name = sender.congestion_control();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if kernel_name.is_empty()
            || kernel_name.len() > MAX_NAME
            || !kernel_name.chars().all(is_name)
        {
            return Err(format!("{name:?} is no name of a congestion control, such as cubic"));
        }
        if name.ends_with(HYSTART_SUFFIX) && kernel_name != "cubic" {
            return Err(format!("{kernel_name} has no HyStart"));
        }
        Ok(sender)
    }
}

impl TryFrom<String> for Sender {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Sender> for String {
    fn from(sender: Sender) -> Self {
        sender.0
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubic_is_without_hystart_and_has_a_name_with_it() {
        let parsed = |name: &str| {
            let sender: Sender = name.parse().unwrap();
            (sender.congestion_control().to_owned(), sender.hystart())
        };
        assert_eq!(parsed("cubic"), ("cubic".to_owned(), Some(false)));
        assert_eq!(parsed("cubic-hystart"), ("cubic".to_owned(), Some(true)));
        assert_eq!(parsed("bbr"), ("bbr".to_owned(), None));
        let of_server = |name: &str| Sender::of_server(name).unwrap().to_string();
        assert_eq!(of_server("cubic"), "cubic-hystart");
        assert_eq!(of_server("cubic_nohs"), "cubic");
        assert_eq!(of_server("bbr"), "bbr");
        for wrong in ["", "reno-hystart", "a b", "sixteen_letters_", "../cubic"] {
            assert!(wrong.parse::<Sender>().is_err(), "{wrong}");
        }
    }
}
