package cloudtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// WriteFiles writes the files of a machine's description below root, as cloud-init does. Paths in them become those
// below root, and the address http://ramus.example becomes url.
func WriteFiles(userData, root, url string) error {
	var description struct {
		Files []struct{ Path, Permissions, Content string } `yaml:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(userData), &description); err != nil {
		return err
	}
	own := strings.NewReplacer("http://ramus.example", url, "/etc/ramus", root+"/etc/ramus", "/var/log", root+"/var/log",
		"/usr/local/", root+"/usr/local/")
	for _, f := range description.Files {
		mode, err := strconv.ParseUint(f.Permissions, 8, 32)
		if err != nil {
			return err
		}
		name := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(own.Replace(f.Content)), os.FileMode(mode)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "var/log"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "var/log/cloud-init-output.log"), []byte("cloud-init is done\n"), 0o600)
}
