package worktree

import (
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
)

// Identity has the names under which commits are made.
type Identity struct {
	// Bot is the committer of every commit, and the author of commits without an asker.
	Bot gitd.Person
	// Key is the public key by which the server signs commits. If it is empty the server signs none.
	Key string
}

// Author returns p, with the name and the address of Bot where p has none.
func (i Identity) Author(p gitd.Person) gitd.Person {
	if p.Name == "" {
		p.Name = i.Bot.Name
	}
	if p.Email == "" {
		p.Email = i.Bot.Email
	}
	return p
}

// Env returns the environment by which git makes author the author and Bot the committer, also where a command itself runs
// `git commit`.
func (i Identity) Env(author gitd.Person) []string {
	author = i.Author(author)
	return []string{
		"GIT_AUTHOR_NAME=" + author.Name,
		"GIT_AUTHOR_EMAIL=" + author.Email,
		"GIT_COMMITTER_NAME=" + i.Bot.Name,
		"GIT_COMMITTER_EMAIL=" + i.Bot.Email,
	}
}

// signing returns the environment of scripts that make commits.
func (i Identity) signing() []string {
	env := []string{"RAMUS_PROGRAM=" + containers.RunnerProgram}
	if i.Key != "" {
		env = append(env, "RAMUS_SIGN="+i.Key)
	}
	return env
}
