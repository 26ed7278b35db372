# shellcheck shell=bash
# Sourced. Tools that are built from source once and kept under the target folder.

TARGET=${CARGO_TARGET_DIR:-$PWD/target}
TOOLS=$TARGET/tools

# cargo_tool CRATE VERSION [PROGRAM]: prints the path of the program. Unoptimised: they run for seconds.
cargo_tool() {
    local crate=$1 version=$2 program=${3:-$1} home
    home=$TOOLS/$crate-$version
    if [ ! -x "$home/bin/$program" ]; then
        CARGO_TARGET_DIR=$TOOLS/build CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 \
            cargo install --quiet --locked --debug --root "$home" "$crate@$version" >&2
        rm -rf "$TOOLS/build"
    fi
    echo "$home/bin/$program"
}

# h2spec as scripts/h2spec/go.mod pins it.
h2spec_tool() {
    local program=$TOOLS/h2spec
    if [ ! -x "$program" ] || [ scripts/h2spec/go.sum -nt "$program" ]; then
        mkdir -p "$TOOLS"
        (cd scripts/h2spec && GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0 \
            go build -o "$program" github.com/summerwind/h2spec/cmd/h2spec) >&2
    fi
    echo "$program"
}
