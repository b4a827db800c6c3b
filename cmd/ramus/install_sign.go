package main

import "github.com/ramus-dev/ramus/gitd"

// newSigner makes what signs commits; nil where no key is configured.
func newSigner(c BotConfig, secret *secrets) (*gitd.CommitSigner, error) {
	key, err := secret.value("bot.signing_key", c.SigningKeyEnv, c.SigningKeyFile)
	if err != nil || key == "" {
		return nil, err
	}
	return gitd.NewCommitSigner([]byte(key + "\n"))
}
