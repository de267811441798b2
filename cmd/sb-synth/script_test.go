package main

import (
	"testing"

	"substrate/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"sb-synth": main}) }

func TestScripts(t *testing.T) { clitest.Run(t, "testdata/script") }
