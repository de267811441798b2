package clitest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"substrate/internal/cli"
	"substrate/internal/manual"
)

// testManuals holds manuals and completions against the tools in a folder.
func testManuals(t *testing.T, bin string) {
	root := "../.."
	tools, err := manual.Describe(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("files", func(t *testing.T) {
		if !withCgo {
			t.Skip("the default backend is another one without cgo, which help and pages say")
		}
		files, err := manual.Files(root, tools)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			if name = filepath.Join(root, name); updating() {
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(want), 0o666)); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(name); err != nil || string(got) != want {
				t.Errorf("%s is out of date (%v): run make man", name, err)
			}
		}
	})
	for _, tool := range tools {
		t.Run(tool.Name, func(t *testing.T) {
			page := read(t, filepath.Join(root, "man", tool.Name+".1"))
			for _, v := range tool.Verbs {
				agree(t, root, page, &tool, &v)
			}
			for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "INPUT", "OUTPUT", "OPTIONS", "EXIT STATUS", "EXAMPLES"} {
				if !strings.Contains(page, "\n.SH "+section+"\n") {
					t.Errorf("no section %s", section)
				}
			}
		})
	}
	t.Run("examples", func(t *testing.T) { testExamples(t, root, tools) })
	t.Run("README", func(t *testing.T) { testReadme(t, root) })
	t.Run("pipeline.md", func(t *testing.T) { testPipelineDoc(t, root) })
	t.Run("bash", func(t *testing.T) { testBash(t, root) })
	for shell, files := range map[string]string{"zsh": "completions/zsh/*", "fish": "completions/fish/*"} {
		if _, err := exec.LookPath(shell); err == nil {
			shellOut(t, ".", shell+" -n "+filepath.Join(root, files))
		}
	}
}

// agree requires every flag of a verb in its help, on the page and in the
// completions, and no other flag in the help.
func agree(t *testing.T, root, page string, tool *cli.Description, v *cli.VerbDescription) {
	args := []string{"--help"}
	if v.Name != "" {
		args = []string{v.Name, "--help"}
	}
	out, err := exec.Command(tool.Name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, flags, _ := strings.Cut(string(out), "\nflags:\n")
	flags, _, _ = strings.Cut(flags, "\n\n")
	inHelp := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(flags, -1) {
		inHelp[m[1]] = true
	}
	bash := read(t, filepath.Join(root, "completions/bash", tool.Name))
	zsh := read(t, filepath.Join(root, "completions/zsh/_"+tool.Name))
	fish := read(t, filepath.Join(root, "completions/fish", tool.Name+".fish"))
	for _, f := range v.Flags {
		name := "--" + f.Name
		for where, has := range map[string]bool{
			"help": inHelp[f.Name], "manual": strings.Contains(page, `\fB`+strings.ReplaceAll(name, "-", `\-`)+`\fR`),
			"bash": strings.Contains(bash, name+" "), "zsh": strings.Contains(zsh, "'"+name), "fish": strings.Contains(fish, " -l "+f.Name+" "),
		} {
			if !has {
				t.Errorf("%s %s: %s is not in %s", tool.Name, v.Name, name, where)
			}
		}
		delete(inHelp, f.Name)
	}
	for name := range inHelp {
		t.Errorf("%s %s: --%s is in help alone", tool.Name, v.Name, name)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shellOut runs a command in a folder and returns what it prints.
func shellOut(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// exampleFolder is what the examples of the manuals find: a tiny model with a
// chat template, a table, two plans, a store.
func exampleFolder(t *testing.T, root string) string {
	dir := t.TempDir()
	models, err := filepath.Abs(filepath.Join(root, "testdata", "models"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	template := "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{{ 'assistant: ' if add_generation_prompt }}"
	shellOut(t, dir, "cp -r "+models+"/qwen3moe model && chmod -R u+w model && printf '%s' \""+strings.ReplaceAll(template, "\n", `\n`)+"\" >model/chat_template.jinja"+
		" && sb-calibrate profile -q model | sb-synth table -q - -o table.json && sb-plan -q table.json --max-ram 64M -o plan.json && sb-plan -q table.json --max-ram 48M -o other.json && sb-pack -q --model model -o m.sb plan.json")
	return dir
}

// testExamples runs every command of the EXAMPLES sections.
func testExamples(t *testing.T, root string, tools []cli.Description) {
	_, noJQ := exec.LookPath("jq")
	dir := exampleFolder(t, root)
	for _, tool := range tools {
		_, section, _ := strings.Cut(read(t, filepath.Join(root, "man", tool.Name+".1")), "\n.SH EXAMPLES\n")
		section, _, _ = strings.Cut(section, "\n.SH ")
		commands := 0
		for _, block := range regexp.MustCompile(`(?s)\.EX\n(.*?)\.EE`).FindAllStringSubmatch(section, -1) {
			for line := range strings.Lines(strings.NewReplacer(`\-`, "-", `\e`, `\`).Replace(block[1])) {
				if line = strings.TrimSpace(line); strings.Contains(line, "jq ") && noJQ != nil {
					t.Logf("skipped without jq: %s", line)
					continue
				}
				if out := shellOut(t, dir, line); strings.Contains(line, "| jq") && strings.TrimSpace(out) == "" {
					t.Errorf("%s: nothing came out", line)
				}
				commands++
			}
		}
		if commands < 2 {
			t.Errorf("%s: %d examples", tool.Name, commands)
		}
	}
}

// testReadme runs the three commands that lead from a model to its text.
func testReadme(t *testing.T, root string) {
	_, section, ok := strings.Cut(read(t, filepath.Join(root, "README.md")), "## Your own model in three commands\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(section, -1)
	if !ok || len(commands) != 3 || !strings.HasPrefix(commands[0][1], "make ") {
		t.Fatalf("want three commands, make the first, got %q", commands)
	}
	dir := exampleFolder(t, root)
	shellOut(t, dir, "mv model my-model; rm my-model/chat_template.jinja")
	shellOut(t, dir, shorter(commands[1][1]))
	if out := shellOut(t, dir, commands[2][1]+" -q -n 20"); strings.TrimSpace(out) == "" {
		t.Error("the model says nothing")
	}
}

// shorter makes a command's measurement one of a tiny model, and the large
// model less deep.
func shorter(command string) string {
	return strings.NewReplacer("sb-calibrate measure ", "sb-calibrate measure -q --tokens 128 --levels 4,6 --group 32 ",
		"sb-calibrate verify ", "sb-calibrate verify -q --tokens 128 ",
		`"num_hidden_layers": 48`, `"num_hidden_layers": 3`, "--max-ram 1G ", "--max-ram 64M ").Replace(command)
}

// testPipelineDoc runs the sessions and recipes of docs/pipeline.md.
func testPipelineDoc(t *testing.T, root string) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("no jq")
	}
	dir := exampleFolder(t, root)
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUBSTRATE", abs)
	shellOut(t, dir, "mv model my-model; cp "+filepath.Join(abs, "pkg/doc/testdata/machine.json")+" golden.json")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(read(t, filepath.Join(root, "docs/pipeline.md")), -1)
	for _, block := range blocks {
		// The disk of the machine that tests is nobody's business.
		script := strings.ReplaceAll(shorter(block[1]), "sb-calibrate machine -o", "cp golden.json")
		script = strings.ReplaceAll(script, "model.mk MODEL", "model.mk MEASURE_FLAGS='--tokens 128 --levels 4,6 --group 32' MODEL")
		if out := shellOut(t, dir, script); strings.Contains(script, "jq ") && strings.TrimSpace(out) == "" {
			t.Errorf("nothing came out of:\n%s", script)
		}
	}
	if len(blocks) < 12 {
		t.Errorf("%d blocks of commands", len(blocks))
	}
}

// testBash asks the completions as bash does.
func testBash(t *testing.T, root string) {
	for line, want := range map[string]string{
		"sb-plan --max-r":             "--max-ram",
		"sb-plan sh":                  "show",
		"sb-run --temperat":           "--temperature",
		"sb-trace summary --js":       "--json",
		"sb-trace --h":                "--help",
		"sb-plan --machine testdata/": "testdata/script",
		"sb-run --seed te":            "",
		"sb-pack ls testda":           "testdata",
	} {
		words := strings.Fields(line)
		script := "set +e; source " + filepath.Join(root, "completions/bash", words[0]) + "; COMP_WORDS=(" + line + "); COMP_CWORD=" +
			string(rune('0'+len(words)-1)) + "; _" + strings.ReplaceAll(words[0], "-", "_") + "; echo \"${COMPREPLY[@]}\""
		if got := strings.TrimSpace(shellOut(t, ".", script)); got != want {
			t.Errorf("%s: completed to %q, want %q", line, got, want)
		}
	}
}
