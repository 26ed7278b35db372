# shellcheck shell=bash
# Sourced. Builds the program, optimised, and says where it is: $SMIG. An argument is the profile, if not `gate`.
#
# SMIG given from outside is used as it stands: to test a program that is already built.

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
