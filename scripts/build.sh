# shellcheck shell=bash
# Sourced. Defines build_smig [PROFILE], which builds the program and sets $SMIG to its path; the profile is `gate` by
# default. build_commit COMMIT DIR builds the committed tree for published measurements: a release build with the commit embedded,
# kept in DIR beside its results. It sets $SMIG too.
#
# If SMIG is set already, build_smig builds nothing: to test an existing program.

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

build_commit() {
    if [ -n "$(git -C "$root" status --porcelain --untracked-files=no)" ]; then
        echo "error: there are uncommitted changes; results name their commit" >&2
        return 1
    fi
    if [ "$(git -C "$root" rev-parse HEAD)" != "$1" ]; then
        echo "error: another commit has been checked out meanwhile; run this again" >&2
        return 1
    fi
    SMIG=$2/smig
    if [ ! -x "$SMIG" ]; then
        SMIG_COMMIT=$1 \
            cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" -p smig-cli
        mkdir -p "$2"
        cp "$TARGET/release/smig" "$SMIG.new"
        mv "$SMIG.new" "$SMIG"
    fi
    export SMIG
}
