package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
)

func completionCommand() command {
	return command{
		name: "completion", args: "bash|zsh|fish",
		short: "print the script by which a shell completes commands and flags",
		long: `
  bash:  source <(ramus completion bash)
  zsh:   source <(ramus completion zsh)
  fish:  ramus completion fish | source`,
		run: func(_ context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "the shell"); err != nil {
				return err
			}
			words := map[string][]string{"": names(commands())}
			for _, c := range commands() {
				if c.subs != nil {
					words[c.name] = names(c.subs)
					for _, sub := range c.subs {
						words[c.name+" "+sub.name] = flagWords(sub)
					}
					continue
				}
				words[c.name] = flagWords(c)
			}
			paths := make([]string, 0, len(words))
			for path := range words {
				paths = append(paths, path)
			}
			slices.Sort(paths)
			switch args[0] {
			case "bash", "zsh":
				if args[0] == "zsh" {
					fmt.Fprintln(e.out, "autoload -U +X bashcompinit && bashcompinit")
				}
				fmt.Fprint(e.out, "_ramus() {\n  local cur=${COMP_WORDS[COMP_CWORD]} path=${COMP_WORDS[1]}\n"+
					"  case $path in "+strings.Join(groups(), "|")+
					") [ $COMP_CWORD -gt 2 ] && path=\"$path ${COMP_WORDS[2]}\";; esac\n"+
					"  [ $COMP_CWORD -eq 1 ] && path=\n  local words=\n  case $path in\n")
				for _, path := range paths {
					fmt.Fprintf(e.out, "    '%s') words='%s';;\n", path, strings.Join(words[path], " "))
				}
				fmt.Fprint(e.out, "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _ramus ramus\n")
			case "fish":
				for _, c := range commands() {
					fmt.Fprintf(e.out, "complete -c ramus -n __fish_use_subcommand -a %s -d '%s'\n", c.name,
						strings.ReplaceAll(c.short, "'", `\'`))
				}
				for _, path := range paths[1:] {
					condition := "'"
					for i, word := range strings.Fields(path) {
						if i > 0 {
							condition += "; and "
						}
						condition += "__fish_seen_subcommand_from " + word
					}
					for _, word := range words[path] {
						if long, ok := strings.CutPrefix(word, "--"); ok {
							fmt.Fprintf(e.out, "complete -c ramus -n %s' -l %s\n", condition, long)
						} else {
							fmt.Fprintf(e.out, "complete -c ramus -n %s' -a %s\n", condition, word)
						}
					}
				}
			default:
				return usage("no completion for %q: want bash, zsh or fish", args[0])
			}
			return nil
		},
	}
}

// groups returns the names of the commands with subcommands.
func groups() []string {
	var list []string
	for _, c := range commands() {
		if c.subs != nil {
			list = append(list, c.name)
		}
	}
	return list
}

func flagWords(c command) []string {
	var list []string
	c.flags(newEnv(stdio{}, nil), c.name).VisitAll(func(f *flag.Flag) { list = append(list, "--"+f.Name) })
	return list
}
