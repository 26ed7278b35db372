# shellcheck shell=bash
# Sourced by the benchmarks, from the repository's root. Builds the programs and names them: $SMIG, $HYPER_PEER, $HOLD.
. scripts/need.sh
# shellcheck disable=SC2119
need_rust
need cc curl openssl h2load nghttpd nginx h2o python3 ss taskset
root=$PWD
. scripts/build.sh
. scripts/tools.sh
export TOOLS
build_smig release
CARGO_TARGET_DIR=$TARGET/bench cargo build --release --locked --quiet --manifest-path bench/hyper-peer/Cargo.toml
export HYPER_PEER=$TARGET/bench/release/hyper-peer
export HOLD=$TARGET/bench/release/hold
