# shellcheck shell=bash
# Sourced. Builds the program, optimised, and says where it is: $SMIG.
#
# SMIG given from outside is used as it stands: to test a program that is already built.

TARGET=${CARGO_TARGET_DIR:-$root/target}

build_smig() {
    if [ -n "${SMIG:-}" ]; then
        return
    fi
    cargo build --profile gate --locked --quiet --manifest-path "$root/Cargo.toml" -p smig-cli
    SMIG=$TARGET/gate/smig
    export SMIG
}
