package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
)

func versionCommand() command {
	return command{
		name: "version", args: "", short: "print the version",
		set: func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") },
		run: func(_ context.Context, e *env, _ []string) error {
			if e.json {
				return e.writeJSON(map[string]string{"version": buildVersion(), "go": runtime.Version(),
					"platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			fmt.Fprintf(e.out, "ramus %s %s %s/%s\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
