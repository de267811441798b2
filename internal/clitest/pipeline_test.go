package clitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main(m, nil)
}

// TestPipelines runs testdata/script with all tools of cmd/, and holds their
// manuals and documentation against them.
func TestPipelines(t *testing.T) {
	bin := t.TempDir()
	if err := buildTools(bin); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	Run(t, "testdata/script")
	t.Run("manuals", func(t *testing.T) { testManuals(t, bin) })
}

// buildTools compiles the tools that exist into a folder.
func buildTools(dir string) error {
	mains, err := filepath.Glob("../../cmd/sb-*/main.go")
	if err != nil || len(mains) == 0 {
		return err
	}
	args := []string{"build", "-o", dir + "/"}
	for _, main := range mains {
		args = append(args, "./"+filepath.Base(filepath.Dir(main)))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = "../../cmd"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
