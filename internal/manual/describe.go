package manual

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
)

// Describe asks the tools in a folder what they take.
func Describe(bin string) ([]cli.Description, error) {
	paths, err := filepath.Glob(filepath.Join(bin, "sb-*"))
	if err != nil {
		return nil, err
	}
	var tools []cli.Description
	for _, path := range paths {
		out, err := exec.Command(path, "--describe").Output()
		if err != nil {
			return nil, fmt.Errorf("%s --describe: %w", path, err)
		}
		var t cli.Description
		if err := jsonio.Unmarshal(path+" --describe", out, &t); err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return tools, nil
}
