# shellcheck shell=bash
# Sourced. Tools that are built from source once and kept in the target directory.

TARGET=${CARGO_TARGET_DIR:-$PWD/target}
TOOLS=$TARGET/tools

# cargo_tool CRATE VERSION [PROGRAM [FLAG...]]: prints the program's path. Not optimised: the tools run for seconds.
cargo_tool() {
    local crate=$1 version=$2 program=${3:-$1} home
    shift $(($# < 3 ? $# : 3))
    home=$TOOLS/$crate-$version
    if [ ! -x "$home/bin/$program" ]; then
        CARGO_TARGET_DIR=$TOOLS/build CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 \
            cargo install --quiet --locked --debug --root "$home" "$@" "$crate@$version" >&2
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

# nextest ARGUMENT...: runs tests with cargo-nextest and .config/nextest.toml; sets $TESTS to its summary.
nextest() {
    local program log rc=0
    program=$(cargo_tool cargo-nextest 0.9.128 cargo-nextest --no-default-features --features default-no-update)
    log=$(mktemp)
    "$program" nextest run --locked --cargo-quiet --no-tests fail "$@" 2>&1 | tee "$log" || rc=$?
    TESTS=$(sed -n 's/^ *Summary \[[^]]*\] *//p' "$log" | tail -n 1)
    rm -f "$log"
    return "$rc"
}
