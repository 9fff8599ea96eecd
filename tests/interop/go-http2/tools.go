//go:build tools

// Package tools names the programs of others that are built from this module.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
