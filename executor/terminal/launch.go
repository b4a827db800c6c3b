package terminal

import (
	_ "embed"
	"strings"
)

var (
	//go:embed rc/bash.sh
	bashRC string
	//go:embed rc/sh.sh
	shRC string
)

// Launch returns a line for sh that becomes an interactive shell, which prints marks. The shell is bash, or sh if there
// is no bash. Its start file comes by a descriptor, so that nothing in the container or on the branch replaces it.
func Launch() string {
	var b strings.Builder
	b.WriteString("if command -v bash >/dev/null 2>&1; then\n")
	b.WriteString("exec 9<<'RAMUS_RC'\n" + bashRC + "RAMUS_RC\n")
	b.WriteString("exec bash --rcfile /dev/fd/9 -i\nfi\n")
	b.WriteString("exec 9<<'RAMUS_RC'\n" + shRC + "RAMUS_RC\n")
	b.WriteString("ENV=/dev/fd/9 exec sh -i\n")
	return b.String()
}

// Environment returns the environment of a shell of [Launch], in the terminal and for the caller of these names.
func Environment(terminal, caller string) []string {
	return []string{"RAMUS_TERMINAL=" + terminal, "RAMUS_NAME=" + caller}
}

// PromptPath begins the path by which a shell asks at its container's door whether a command is committed. The name of
// its terminal and the number of the command follow.
const PromptPath = "/terminal/"
