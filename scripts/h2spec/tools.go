//go:build tools

// Package tools pins h2spec and its dependencies at versions that Debian 12's Go 1.19 compiles.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
