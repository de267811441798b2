package manual

import (
	"fmt"
	"strings"

	"substrate/internal/cli"
)

const completionHead = "Generated from the flags of %s by `make man`. DO NOT EDIT."

// namesFile reports whether a value, of a flag or an argument, is a path.
func namesFile(arg string) bool {
	arg = strings.Trim(arg, "[].")
	switch arg {
	case "FILE", "DIR", "STORE", "MODEL", "PLAN", "TABLE", "PROFILE", "TRACE", "CONFIG", "POLICY", "MACHINE", "DOCUMENT", "VERIFY":
		return true
	}
	return false
}

// words are the ways to write a flag.
func words(f cli.FlagDescription) []string {
	w := []string{"--" + f.Name}
	if f.Shorthand != "" {
		w = append(w, "-"+f.Shorthand)
	}
	return w
}

func verbNames(t *cli.Description) []string {
	var names []string
	for _, v := range t.Verbs {
		if v.Name != "" {
			names = append(names, v.Name)
		}
	}
	return names
}

// bash completes verbs, flags and files.
func bash(t *cli.Description) string {
	var b strings.Builder
	fn := "_" + strings.ReplaceAll(t.Name, "-", "_")
	fmt.Fprintf(&b, "# "+completionHead+"\n\n%s() {\n", t.Name, fn)
	b.WriteString("\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags files values verbs=\n")
	b.WriteString("\tcase ${COMP_WORDS[1]} in\n")
	var fallback string
	for _, v := range t.Verbs {
		var flags, files, values []string
		for _, f := range v.Flags {
			flags = append(flags, words(f)...)
			switch {
			case f.Arg == "":
			case namesFile(f.Arg):
				files = append(files, words(f)...)
			default:
				values = append(values, words(f)...)
			}
		}
		flags = append(flags, "--help")
		body := fmt.Sprintf("flags='%s' files=' %s ' values=' %s '", strings.Join(flags, " "), strings.Join(files, " "), strings.Join(values, " "))
		if v.Name == "" {
			fallback = body
			continue
		}
		fmt.Fprintf(&b, "\t%s) %s ;;\n", v.Name, body)
	}
	if fallback == "" {
		fallback = "flags='--help --version' files= values="
	}
	fmt.Fprintf(&b, "\t*) %s ;;\n\tesac\n", fallback)
	fmt.Fprintf(&b, "\t[[ $COMP_CWORD == 1 ]] && verbs='%s'\n", strings.Join(verbNames(t), " "))
	b.WriteString(`	if [[ $files == *" $prev "* ]]; then
		COMPREPLY=($(compgen -f -- "$cur"))
	elif [[ $values == *" $prev "* ]]; then
		COMPREPLY=()
	elif [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$flags" -- "$cur"))
	else
		COMPREPLY=($(compgen -W "$verbs" -- "$cur") $(compgen -f -- "$cur"))
	fi
}
`)
	fmt.Fprintf(&b, "complete -o filenames -F %s %s\n", fn, t.Name)
	return b.String()
}

// zsh completes by _arguments.
func zsh(t *cli.Description) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n# "+completionHead+"\n\n", t.Name, t.Name)
	if names := verbNames(t); len(names) > 0 {
		b.WriteString("local -a verbs\nverbs=(\n")
		for _, v := range t.Verbs {
			if v.Name != "" {
				fmt.Fprintf(&b, "\t%s\n", zshQuote(v.Name+":"+strings.ReplaceAll(v.Summary, ":", `\:`)))
			}
		}
		b.WriteString(")\nif (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n\t_describe verb verbs\nfi\n")
	}
	b.WriteString("case $words[2] in\n")
	write := func(pattern string, v *cli.VerbDescription) {
		fmt.Fprintf(&b, "%s)\n\t_arguments -s", pattern)
		for _, f := range v.Flags {
			for _, w := range words(f) {
				spec := w
				if f.Arg != "" && strings.HasPrefix(w, "--") {
					spec += "="
				}
				spec += "[" + strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(f.Usage) + "]"
				if f.Arg != "" {
					spec += ":" + strings.ToLower(f.Arg) + ":"
					if namesFile(f.Arg) {
						spec += "_files"
					}
				}
				b.WriteString(" \\\n\t\t" + zshQuote(spec))
			}
		}
		b.WriteString(" \\\n\t\t'--help[show help]' '*:file:_files'\n\t;;\n")
	}
	none := &cli.VerbDescription{}
	for i := range t.Verbs {
		if v := &t.Verbs[i]; v.Name == "" {
			none = v
		} else {
			write(v.Name, v)
		}
	}
	write("*", none)
	b.WriteString("esac\n")
	return b.String()
}

func zshQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// fish completes by one line a flag.
func fish(t *cli.Description) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# "+completionHead+"\n\n", t.Name)
	names := strings.Join(verbNames(t), " ")
	for _, v := range t.Verbs {
		condition := ""
		switch {
		case v.Name != "":
			condition = " -n '__fish_seen_subcommand_from " + v.Name + "'"
			fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", t.Name, v.Name, fishQuote(v.Summary))
		case names != "":
			condition = " -n 'not __fish_seen_subcommand_from " + names + "'"
		}
		for _, f := range v.Flags {
			fmt.Fprintf(&b, "complete -c %s%s -l %s", t.Name, condition, f.Name)
			if f.Shorthand != "" {
				b.WriteString(" -s " + f.Shorthand)
			}
			switch {
			case f.Arg == "":
			case namesFile(f.Arg):
				b.WriteString(" -r -F")
			default:
				b.WriteString(" -x")
			}
			b.WriteString(" -d " + fishQuote(f.Usage) + "\n")
		}
	}
	return b.String()
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
