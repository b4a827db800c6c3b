package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestBrowserFilm records a film of a check with a real Chromium and ffmpeg, in the image browser-video. The film is
// among the evidence, and ffprobe reads the pictures of some seconds from it.
func TestBrowserFilm(t *testing.T) {
	if !browserFull() {
		t.Skip("only with RAMUS_TEST=full: builds the image browser-video, for a minute")
	}
	if out, err := exec.CommandContext(t.Context(), "make", "-C", "../..",
		"browser-video").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the image browser-video: %v\n%s", err, out)
	}
	s := newBrowserServer(t, "docker", "image: ramus/browser:video")
	var steps []any
	for i := range 5 {
		steps = append(steps, map[string]any{"goto": "/"}, map[string]any{"screenshot": fmt.Sprint("before-", i)},
			map[string]any{"click": "button"}, map[string]any{"expect_text": "#count", "value": "6 open"})
	}
	m, err := s.run("run:film", record.Request{Task: &record.TaskCall{Name: "browser_test",
		Params: map[string]any{"check": map[string]any{
			"start": "python3 -m http.server 5173 --bind 127.0.0.1", "url": "http://127.0.0.1:5173/", "video": true,
			"viewports": []any{"desktop"}, "steps": steps}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Browser) != 1 || m.Browser[0].Verdict != record.BrowserPass || len(m.Browser[0].Views) != 1 {
		t.Fatalf("the check: %+v", m.Browser)
	}
	name := m.Browser[0].Views[0].Video
	if name == "" {
		t.Fatalf("there is no film: %+v", m.Browser[0])
	}
	film := filepath.Join(t.TempDir(), "film.webm")
	f, err := os.Create(film)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.api.EvidenceFile(t.Context(), m.Run, "artifacts/browser/"+name, f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(s.sh(filepath.Dir(film), `chmod 755 . && chmod 644 film.webm && docker run --rm --network none -v "$PWD:/film:ro" --entrypoint ffprobe ramus/browser:video \
-v error -select_streams v -count_frames -show_entries stream=width,height,nb_read_frames:format=duration -of default=noprint_wrappers=1:nokey=1 /film/film.webm`))
	if len(fields) != 4 {
		t.Fatalf("ffprobe says %q", fields)
	}
	frames, _ := strconv.Atoi(fields[2])
	length, _ := strconv.ParseFloat(fields[3], 64)
	t.Logf("%s × %s, %d pictures, %.1f s", fields[0], fields[1], frames, length)
	if frames < 10 || length < 0.5 || length > 60 {
		t.Errorf("%d pictures in %.1f s", frames, length)
	}
	s.finish()
}
