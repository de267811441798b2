// Package lint holds the project's rules about its own source that no compiler checks: who may import whom, where C may
// be, what a file and a package may contain. They are tests, so that "go test ./..." keeps them.
package lint
