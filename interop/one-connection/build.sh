# shellcheck shell=bash
# Sourced, from the repository's root, after scripts/build.sh. Builds the Go programs that interop/one-connection/run calls.
go_peers=$TARGET/interop-go
mkdir -p "$go_peers"
(cd interop/go && GOTOOLCHAIN=local GOFLAGS='' CGO_ENABLED=0 go build -o "$go_peers/" ./beside ./grpcpeer)
export INTEROP_GO_BESIDE=$go_peers/beside INTEROP_GRPC_GO=$go_peers/grpcpeer
