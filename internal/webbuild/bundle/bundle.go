// Package bundle makes the files that browsers load from the sources of gateway/web: scripts from TypeScript, and one style sheet. Their names
// hold hashes of their contents, so that browsers can keep them.
package bundle

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// ManifestName is the name of the file that has the [Manifest] as JSON.
const ManifestName = "manifest.json"

// Manifest lists the files of a build.
type Manifest struct {
	// Files has the name of each file with its hash, by the name without ("app.js").
	Files map[string]string `json:"files"`
	// Sizes has the sizes in bytes after gzip, by the name without the hash.
	Sizes map[string]int `json:"sizes"`
	// Missing lists the entry points that could not be built, because their packages of npm are not installed.
	Missing []string `json:"missing,omitempty"`
}

// Output is a build in memory: the contents of files by name.
type Output struct {
	Manifest Manifest
	Files    map[string][]byte
}

// entry is a file that pages load.
type entry struct {
	source, name string
	// needs is a package of npm without which the entry is left out.
	needs string
}

var entries = []entry{
	{"island/app.ts", "app.js", ""},
	{"island/past.ts", "past.js", ""},
	{"island/term.ts", "term.js", "@xterm/xterm"},
	{"style/app.css", "app.css", ""},
	{"style/term.css", "term.css", "@xterm/xterm"},
	{"static/icon.svg", "icon.svg", ""},
}

// Build bundles the sources in a folder. Entry points whose source does not exist are left out.
func Build(dir string) (Output, error) {
	out := Output{Manifest: Manifest{Files: map[string]string{}, Sizes: map[string]int{}}, Files: map[string][]byte{}}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return out, err
	}
	var points []api.EntryPoint
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.source)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if e.needs != "" {
			if _, err := os.Stat(filepath.Join(dir, "node_modules", e.needs)); err != nil {
				out.Manifest.Missing = append(out.Manifest.Missing, e.name)
				continue
			}
		}
		points = append(points, api.EntryPoint{InputPath: e.source,
			OutputPath: strings.TrimSuffix(e.name, path.Ext(e.name))})
	}
	built := api.Build(api.BuildOptions{
		EntryPointsAdvanced: points, AbsWorkingDir: dir, Outdir: "dist", EntryNames: "[dir]/[name].[hash]",
		ChunkNames: "[name].[hash]", AssetNames: "[name].[hash]",
		Bundle: true, MinifyWhitespace: true, MinifySyntax: true, MinifyIdentifiers: true, Format: api.FormatESModule,
		Target: api.ES2022,
		Loader: map[string]api.Loader{".svg": api.LoaderCopy, ".woff2": api.LoaderCopy},
		// A chunk that a script imports later, such as a renderer, has a file of its own.
		Splitting: true,
		// The licences of packages ask for their notices in every copy.
		LegalComments: api.LegalCommentsEndOfFile, Charset: api.CharsetUTF8,
		Metafile: true, Write: false,
	})
	if len(built.Errors) > 0 {
		return out, errors.New(strings.Join(api.FormatMessages(built.Errors,
			api.FormatMessagesOptions{Kind: api.ErrorMessage}), "\n"))
	}
	return out, out.add(built, dir)
}

// add takes over the files of a build.
func (out *Output) add(built api.BuildResult, dir string) error {
	var meta struct {
		Outputs map[string]struct {
			EntryPoint string `json:"entryPoint"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(built.Metafile), &meta); err != nil {
		return fmt.Errorf("cannot read the list of built files: %w", err)
	}
	of := map[string]string{} // the entry of a built file
	for name, o := range meta.Outputs {
		if i := slices.IndexFunc(entries, func(e entry) bool { return e.source == o.EntryPoint }); i >= 0 {
			of[path.Base(name)] = entries[i].name
		}
	}
	for _, f := range built.OutputFiles {
		name := filepath.Base(f.Path)
		packed, err := pack(f.Contents)
		if err != nil {
			return err
		}
		out.Files[name], out.Files[name+".gz"] = f.Contents, packed
		if plain := of[name]; plain != "" {
			out.Manifest.Files[plain], out.Manifest.Sizes[plain] = name, len(packed)
		}
	}
	text, err := json.MarshalIndent(out.Manifest, "", "  ")
	if err != nil {
		return err
	}
	out.Files[ManifestName] = append(text, '\n')
	return nil
}

func pack(b []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	err = z.Close()
	return packed.Bytes(), err
}

// Write puts a build into a folder, in place of an earlier one.
func (out Output) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range old {
		if _, kept := out.Files[e.Name()]; !kept {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for name, b := range out.Files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
