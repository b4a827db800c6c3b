// Package rules reads .ramus/rules.yaml, in which a repository names the commands that need a person.
//
// # Nouns
//
// A [Set] is such a file, checked for itself. A [Rule] has patterns of commands, and an answer: allow, ask or deny. A
// pattern is a list of words. Its first word matches the name of a program, and the others match its arguments.
//
// # Invariants
//
// The first rule that matches a command decides. A command that no rule matches is allowed. A pattern matches a command
// that has further arguments. A word of a shell command whose value is not known before it runs matches every pattern of
// a rule that asks or denies, and none of a rule that allows.
package rules
