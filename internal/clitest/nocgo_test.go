//go:build !cgo

package clitest

// withCgo says that the tools have the backends in C, one of which is their
// default.
const withCgo = false
