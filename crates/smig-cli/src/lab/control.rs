//! Names of congestion controls on the command line, checked before anything runs.

use smig_testbed::bpf::check_control_name;

use crate::exit::{CliError, Exit};

/// Checks whether servers can have a congestion control: one of this kernel, or one of the lab. `option` is what names it.
pub(super) fn check_control(option: &str, name: &str) -> Result<(), CliError> {
    // Whether this machine can have one of the lab's shows when the runs are planned, with what is missing.
    check_control_name(name)
        .map_err(|error| CliError::new(Exit::Usage, format!("{option}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_is_a_usage_error_with_those_that_there_are() {
        for name in ["yeah", "illinois", "cubic_nohs"] {
            assert!(check_control("--control", name).is_ok(), "{name}");
        }
        // Every kernel has it.
        assert!(check_control("--control", "reno").is_ok());
        for name in ["bbrr", "", "../reno", "cubic-hystart"] {
            let error = check_control("--host-control a.example", name).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.exit, Exit::Usage);
            assert!(text.starts_with("--host-control a.example: this kernel has no"), "{text}");
            assert!(text.contains("reno") && text.contains("illinois"), "{text}");
        }
    }
}
