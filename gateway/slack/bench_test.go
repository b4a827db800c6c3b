package slack_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// BenchmarkPost posts to fifty channels at once.
func BenchmarkPost(b *testing.B) {
	s := slacktest.New(b)
	for i := range 50 {
		s.AddChannel(fmt.Sprintf("CX%d", i), fmt.Sprint(i), true)
	}
	c := &slack.Client{URL: s.API(), Token: s.Token, Log: slog.New(slog.DiscardHandler)}
	b.SetParallelism(25)
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			m := slack.Message{Channel: fmt.Sprintf("CX%d", n%50), Text: "x", Mark: slack.Mark{Run: fmt.Sprint(n)}}
			if _, err := c.Post(b.Context(), m, false); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkSaid reads a long text with code and links in it.
func BenchmarkSaid(b *testing.B) {
	m := slack.Mention{Bot: "U0RAMUS"}
	for range 500 {
		m.Text += "<@U0RAMUS> look at <https://example.com/x|x> &amp; run ```go test ./...``` for <@U01>\n"
	}
	b.SetBytes(int64(len(m.Text)))
	for b.Loop() {
		m.Said()
	}
}
