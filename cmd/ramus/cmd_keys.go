package main

import (
	"context"
	"flag"
	"fmt"
)

func keysCommand() command {
	return command{name: "keys", args: "rotate", short: "replace the key of sealed credentials", subs: []command{{
		name: "rotate", short: "seal all credentials with a new key",
		long: `
The server makes a new key, seals every credential with it, and then removes the present
key. The present key stays until all are sealed again, so nothing is lost if the server
is killed meanwhile. The next start goes on. A key of the configuration (seal_key_env,
seal_key_file) is replaced there, with the present one as seal_key_earlier.

Backups from before have the earlier key and open by it alone.`,
		set: func(fs *flag.FlagSet, e *env) { setJSON(fs, e) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			done, err := c.RotateKeys(ctx)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(done)
			}
			fmt.Fprintf(e.out, "%d credentials are sealed with a new key; the earlier key is removed\n", done.Credentials)
			return nil
		},
	}}}
}
