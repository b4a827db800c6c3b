// Model-standin serves the model APIs of Anthropic, OpenAI and Google on this machine, to try coding agents without a model. A
// file has its answers.
//
//	model-standin -listen 127.0.0.1:7070 -scenes scenes.yaml
//
// The file has scenes. The first scene whose prompt is a part of the agent's prompt is played:
//
//   - prompt: TestOunces fails
//     answers:
//   - text: Let me look.
//     calls:
//   - {name: read, input: {path: units/units.go}}
//   - text: There is nothing to do.
//
// Each answer except the last calls tools, and the next one follows when these have returned their results. The program ends
// on an interrupt. Its exit status is 1 if a provider would have complained about the agent.
//
// MODEL_KEY is the API key. The default is that of package modeltest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "model-standin:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	flags := flag.NewFlagSet("model-standin", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:7070", "`address` of the APIs")
	path := flags.String("scenes", "", "`file` that says what the model says")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? everything is said by flags", flags.Arg(0))
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return fmt.Errorf("cannot read the scenes: %w", err)
	}
	scenes, err := parse(text)
	if err != nil {
		return fmt.Errorf("cannot read the scenes of %s: %w", *path, err)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("cannot stand in for models: %w", err)
	}
	models := &modeltest.Server{Key: getenv("MODEL_KEY"), Answer: modeltest.Play(scenes...)}
	server := &http.Server{Handler: models, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	for _, provider := range []string{"anthropic", "openai", "gemini"} {
		fmt.Fprintf(out, "%s's stand-in: %s\n", provider, modeltest.BaseURL("http://"+l.Addr().String(), provider))
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = server.Close()
		<-ended
	}
	for _, complaint := range models.Complaints() {
		fmt.Fprintln(out, "the model complains:", complaint)
		if err == nil {
			err = errors.New("the model complained")
		}
	}
	return err
}

// parse parses scenes.
func parse(text []byte) (scenes []modeltest.Scene, err error) {
	var file []struct {
		Prompt  string
		Answers []struct {
			Text  string
			Calls []struct {
				Name  string
				Input map[string]any
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.DisallowUnknownField()); err != nil {
		return nil, err
	}
	for _, s := range file {
		scene := modeltest.Scene{Prompt: s.Prompt}
		for _, a := range s.Answers {
			answer := modeltest.Answer{Text: a.Text}
			for _, c := range a.Calls {
				answer.Calls = append(answer.Calls, modeltest.ToolCall{Name: c.Name, Input: c.Input})
			}
			scene.Answers = append(scene.Answers, answer)
		}
		if len(scene.Answers) == 0 {
			return nil, fmt.Errorf("the scene %q has no answers", scene.Prompt)
		}
		scenes = append(scenes, scene)
	}
	return scenes, nil
}
