package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"golang.org/x/sync/errgroup"
)

func gitdCommand() command {
	var (
		s           gitd.Server
		listen, ssh string
		verbose     bool
	)
	return command{
		name: "gitd", args: "--root DIR [--listen ADDR] [--ssh ADDR] [--anonymous]",
		short: "serve only the bare repositories of a folder",
		long: `
NAME, NAME.git and NAME/.git below DIR are served at /NAME and /NAME.git, with their
own configuration. Repositories may be added and removed while it runs. Without
--anonymous a client needs a token, as Basic password or Bearer token. A token for
everything is printed at the start.`,
		set: func(fs *flag.FlagSet, _ *env) {
			fs.StringVar(&s.Root, "root", "", "`folder` of bare repositories")
			fs.StringVar(&listen, "listen", "127.0.0.1:8080", "`address` for HTTP")
			fs.StringVar(&ssh, "ssh", "", "`address` for SSH")
			fs.StringVar(&s.AuthorizedKeys, "authorized-keys", "", "`file` of the keys that SSH accepts")
			fs.StringVar(&s.KeyFile, "key", "", "`file` of the key that signs tokens (default one in memory)")
			fs.StringVar(&s.HostKeyFile, "host-key", "", "`file` of the SSH host key (default one in memory)")
			fs.BoolVar(&s.Anonymous, "anonymous", false, "allow everybody to read and write")
			fs.BoolVar(&verbose, "v", false, "log every request")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			if s.Root == "" {
				return usage("--root is missing")
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			s.Log, s.OwnConfig = slog.New(slog.NewTextHandler(e.err, &slog.HandlerOptions{Level: level})), true
			if err := s.Open(ctx); err != nil {
				return err
			}
			return errors.Join(serveGit(ctx, e, &s, listen, ssh), s.Close())
		},
	}
}

func serveGit(ctx context.Context, e *env, s *gitd.Server, listen, ssh string) error {
	web, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("cannot listen for HTTP: %w", err)
	}
	var shell net.Listener
	if ssh != "" {
		if shell, err = net.Listen("tcp", ssh); err != nil {
			web.Close()
			return fmt.Errorf("cannot listen for SSH: %w", err)
		}
	}
	if !s.Anonymous {
		t, err := s.Sign(gitd.Grant{Subject: "admin", Repo: "*", Scopes: []string{gitd.ScopeAdmin},
			Write: []string{"refs/*"}, Force: true, Delete: true,
			Expires: time.Now().Add(tokenLife)})
		if err != nil {
			return err
		}
		fmt.Fprintf(e.out, "token %s\n", t)
	}
	server := newHTTPServer(s.Handler(), s.Log)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(web); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestsMay)
		defer cancel()
		if err := server.Shutdown(stopping); err != nil {
			return server.Close()
		}
		return nil
	})
	if shell != nil {
		fmt.Fprintf(e.out, "serving ssh://%s\n", shell.Addr())
		g.Go(func() error { return s.ServeSSH(ctx, shell) })
	}
	fmt.Fprintf(e.out, "serving http://%s\n", web.Addr())
	return g.Wait()
}

// tokenLife is the lifetime of the token that is printed at the start.
const tokenLife = 365 * 24 * time.Hour
