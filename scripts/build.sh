# shellcheck shell=bash
# Sourced. Defines build_smig [PROFILE], which builds the program and sets $SMIG to its path; the profile is `gate` by
# default.
#
# If SMIG is set already, nothing is built: to test an existing program.

TARGET=${CARGO_TARGET_DIR:-$root/target}

build_smig() {
    if [ -n "${SMIG:-}" ]; then
        return
    fi
    local profile=${1:-gate}
    cargo build --profile "$profile" --locked --quiet --manifest-path "$root/Cargo.toml" -p smig-cli
    SMIG=$TARGET/$profile/smig
    export SMIG
}
