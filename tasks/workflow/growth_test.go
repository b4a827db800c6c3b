package workflow

import (
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestWorkflowGrowth checks that the time to read a workflow file grows with the file.
func TestWorkflowGrowth(t *testing.T) {
	within := func(before, token, after string) growth.Case {
		return growth.Case{Prefix: "id: a\nnodes:\n" + before, Token: token, Suffix: after}
	}
	var cases []growth.Case
	for _, token := range []string{
		"{{", "}}", "{{a}}", "{{a}} ", "{{input.a}} ", "{{nope}}", `\{{`, `\`, "$", "'", `"`, "`", "(", ")", "$(", "${",
		"$((", "<<E\n", "#", "\n", "esac ",
		"{{a}}\n", "é", "é{{a}}", "'{{a}}'", `"{{a}}"`, "`{{a}}`", "# {{a}}\n", "{{a.b.c}}", "{{ a }}", "{{state.x}}",
		"{{context.x}}", "{{-}}", "{{{", "$'{{a}}'",
		"\"$(", "\"$({{a}}", "'", "$((1+", "$(({{a}}", "\\\n", "<<-E ", "case ",
	} {
		// In a block the text of each line is literal, so a token's line breaks become indented ones.
		block := ""
		for _, r := range token {
			if block += string(r); r == '\n' {
				block += "      "
			}
		}
		run := within("  - id: a\n    run: |\n      ", block, "\n")
		run.Name = fmt.Sprintf("run %q", token)
		prompt := within("  - id: a\n    llm:\n      prompt: |\n      ", block, "\n")
		prompt.Name = fmt.Sprintf("prompt %q", token)
		cases = append(cases, run, prompt)
	}
	cases = append(cases, growth.Tokens("a", "- ", "- a\n", "a: b\n", "&a ", "*a ", "!a ", "? ", "[", "]", "{", "}",
		"[a,", "{a: ", "'", "''", `"`, `\"`, "\\x41", "|", ">", "%", "@", "`",
		"---\n", "...\n", ": ", ":\n", ",", "#", "# a\n", " ", "\n", "\r\n", "\t", "é", "\u2028", "<<: ", "~\n", "1 ",
		"0x1 ", "1e9 ", "- |\n  a\n", "- >\n  a\n", "- 'a'\n", "- \"a\"\n", "- \"\\u0041\"\n", "- &a b\n", "- *a\n",
		"- a: b\n", "-\n", "- a # b\n", "a:\n  b\n", "a: |\n  b\n", "\"a\": b\n", "\\", "a\\\n", "- !!str a\n",
		"- <<: a\n", "- ? a\n", "\ufeff")...)
	cases = append(cases,
		within("  - {id: a, run: '", "''", "'}\n"),
		within("  - {id: a, run: '", "{{a}}", "'}\n"),
		within("  - {id: a, run: \"", `\n`, "\"}\n"),
		within("  - {id: a, run: \"", `\n{{a}}`, "\"}\n"),
		within("  - {id: a, run: \"", `\u0041`, "\"}\n"),
		within("  - id: a\n    run: ", "{{a}} ", "\n"),
		within("  - id: a\n    run: >\n      ", "{{a}} ", "\n"),
		within("  - id: a\n    run: >\n      ", "{{a}}\n      ", "\n"),
		within("  - id: a\n    run: a", "\n\n      a", "\n"),
		within("  - id: a\n    human: ", "{{a}} ", "\n"),
		within("  - id: a\n    when: ", "(", "\n"),
		within("", "  - {id: a, run: a}\n", ""),
		within("", "  - &a {id: a, run: a}\n  - *a\n", ""),
		within("  - id: a\n    run: &a ", "  \"{{a}}\"", "\n  - {id: b, run: *a}\n"),
		within("  - id: a\n    task: lib_write_file\n    params:\n", "      b: c\n", ""),
		within("  - id: a\n    task: lib_write_file\n    params:\n      content: [", "'{{a}}',", "]\n"),
		within("  - id: a\n    workflow: b\n    input: [", "a,", "]\n"),
		within("  - id: a\n    run: a\n    depends_on: [", "b,", "]\n"),
		within("  - id: a\n    run: a\n    output: [", "b,", "]\n"),
		within("  - id: a\n    human: {message: a, allowed: [", "b,", "]}\n"),
		growth.Case{Name: "nodes", Prefix: "id: a\nnodes:\n",
			Each: func(n int) string { return fmt.Sprintf("  - {id: n%d, run: a}\n", n) }},
		growth.Case{Name: "inputs", Prefix: "id: a\nnodes: [{id: a, run: a}]\ninput:\n",
			Each: func(n int) string { return fmt.Sprintf("  n%d: {type: string}\n", n) }},
		growth.Case{Name: "unknown keys", Prefix: "id: a\nnodes: [{id: a, run: a}]\n",
			Each: func(n int) string { return fmt.Sprintf("n%d: a\n", n) }},
		growth.Case{Name: "outputs", Prefix: "id: a\nnodes:\n- id: a\n  run: a\n  output:\n",
			Each: func(n int) string { return fmt.Sprintf("    n%d: stdout\n", n) }},
		growth.Case{Name: "unknown outputs", Prefix: "id: a\nnodes:\n- id: a\n  run: a\n  output:\n",
			Each: func(n int) string { return fmt.Sprintf("    n%d: state.m%d\n", n, n) }},
		growth.Case{Name: "conditions", Prefix: "id: a\nnodes:\n- id: a\n  run: a\n  output:\n",
			Each: func(n int) string { return fmt.Sprintf("    n%d: '%s'\n", n, conditionOf(9000)) }},
		growth.Case{Name: "parameters", Prefix: "id: a\nnodes:\n- id: a\n  task: lib_write_file\n  params:\n",
			Each: func(n int) string { return fmt.Sprintf("    n%d: stdout\n", n) }},
		growth.Case{Name: "keys with anchors", Prefix: "id: a\n",
			Each: func(n int) string { return fmt.Sprintf("n%d: &n%d a\n", n, n) }},
		growth.Case{Name: "aliases of a text",
			Prefix: "id: a\nnodes:\n- id: a\n  task: lib_write_file\n  params: {content: &a '" +
				string(growth.Repeat("{{a}}").Text(50_000)) + "',\n    b: [", Token: "*a,", Suffix: "]}\n"},
		growth.Case{Name: "depends_on", Prefix: "id: a\nnodes:\n", Each: func(n int) string {
			return fmt.Sprintf("- {id: n%d, run: a, depends_on: [n%d,n%d,n%d,n%d,n%d,n%d,n%d,n%d,n%d,n%d]}\n", n, n+1,
				n+1, n+1, n+1, n+1, n+1, n+1, n+1, n+1, n+1)
		}, Limit: 80_000},
		growth.Case{Name: "transitions", Prefix: "id: a\nnodes: [{id: a, run: a}, {id: b, run: b}]\ntransitions:\n",
			Token: "- {from: a, to: b, when: \"result.ok\"}\n"},
	)
	options := Options{LLM: true, Load: loadExample}
	growth.Check(t, "workflow", func(text []byte) { _, _ = Parse(t.Context(), "a.yaml", text, options) }, cases...)
}

// conditionOf returns an expression with many names in it.
func conditionOf(size int) string {
	return string(growth.Case{Prefix: "[", Token: "state.nope,", Suffix: "1]"}.Text(size))
}

// TestConditionGrowth checks that the time to compile an expression grows with the expression.
func TestConditionGrowth(t *testing.T) {
	var cases []growth.Case
	for _, c := range append(growth.Tokens("(", "[", "{", "!", "-", "a.", "a[", "a?b:", "1+", "a&&", "a||", "a==",
		"'a'+", "'", "\"", "'''", "\\", "//a\n", "a\n", "b'a'", "f(", "a,", "has(a.b)&&", "a in ", "1<", "a.b(", "[1,",
		"state.a+", "$", "é", "0x", "1u", "1e", "\n", "[].all(x,", "\u0000"),
		growth.Case{Token: ".map(x,[x,x])", Prefix: "[1]", Suffix: ".all(x,x==x)"},
		growth.Case{Token: ".map(x,{x:x})", Prefix: "[1]", Suffix: ".all(x,x==x)"},
		growth.Case{Token: "state.a,", Prefix: "[", Suffix: "1]"}, growth.Case{Token: "'a',", Prefix: "[",
			Suffix: "1]"}, growth.Case{Token: "\nstate.a,", Prefix: "[", Suffix: "1]"}) {
		c.Limit = maxExpression
		cases = append(cases, c)
	}
	growth.Check(t, "condition", func(text []byte) { _, _ = compileCondition(string(text), nil, true, true) }, cases...)
}
