package object

import (
	"errors"
	"strings"
	"testing"
)

// TestCheckName checks which names a repository may have.
func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "A", "z", "Z", "0", "9", "a.b", "_", "a-", "team/a", "a/b/c", "refs", "xrefs/a",
		"a.gitx", "git", "refs.x/a", strings.Repeat("a", MaxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                             "is empty",
		strings.Repeat("a", MaxName+1): "is too long",
		"refs/heads":                   "is that of a ref",
		"/a":                           "has an empty part",
		"a//b":                         "has an empty part",
		"a/":                           "has an empty part",
		"-a":                           "has a part that begins with '-'",
		"a/.b":                         "has a part that begins with '.'",
		"..":                           "has a part that begins with '.'",
		"a..b":                         "contains '..'",
		"a.git":                        "has a part that ends in '.git'",
		"a.git/b":                      "has a part that ends in '.git'",
		"a/b.lock":                     "has a part that ends in '.lock'",
		"a.":                           "has a part that ends in '.'",
		"a b":                          "contains a character that is not allowed",
		"a\\b":                         "contains a character that is not allowed",
		"a\x00":                        "contains a character that is not allowed",
		"é":                            "contains a character that is not allowed",
	} {
		if got := NameFault(name); got != want {
			t.Errorf("%q %s, want %s", name, got, want)
		}
		if err := CheckName(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// The neighbours of the letters and digits.
	for _, c := range "@[`{,/:^~?*" {
		if name := "a" + string(c); NameFault(name) == "" {
			t.Errorf("%q is allowed", name)
		}
	}
}

// TestCheckRef checks the rules of git check-ref-format, and those for branches.
func TestCheckRef(t *testing.T) {
	for _, name := range []string{
		"refs/heads/main", "refs/heads/a/b", "refs/tags/-v1", "refs/tags/HEAD", "refs/heads/HEAD/a", "refs/heads/a!b",
		"refs/heads/é", "refs/heads/@", "refs/heads/a@b", "refs/heads/a{b",
		"refs/heads/" + strings.Repeat("a", 250), "refs/heads" + strings.Repeat("/"+strings.Repeat("a", 12), 78),
	} {
		if err := CheckRef(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, tt := range []struct{ name, want string }{
		{"", "is empty"},
		{"refs/heads" + strings.Repeat("/"+strings.Repeat("a", 12), 78) + "a", "is too long"},
		{"refs/heads/a..b", "contains '..'"},
		{"refs/heads/a@{b", "contains '@{'"},
		{"refs/heads/a.", "ends in '.'"},
		{"refs", "has only one part"},
		{"HEAD", "has only one part"},
		{"refs/heads/", "has an empty part"},
		{"/refs/heads", "has an empty part"},
		{"refs//heads", "has an empty part"},
		{"refs/heads/.a", "has a part that begins with '.'"},
		{"refs/heads/a.lock", "has a part that ends in '.lock'"},
		{"refs/a.lock/b", "has a part that ends in '.lock'"},
		{"refs/heads/" + strings.Repeat("a", 251), "has a part that is too long"},
		{"heads/main", "does not begin with refs/"},
		{"refs/heads/-a", "is no name for a branch"},
		{"refs/heads/HEAD", "is no name for a branch"},
	} {
		if err := CheckRef(tt.name); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want+": ") {
			t.Errorf("%q: %v, want: %s", tt.name, err, tt.want)
		}
	}
	for _, c := range "\x00\x1f \x7f~^:?*[\\" {
		if err := CheckRef("refs/heads/a" + string(c) + "b"); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", c, err)
		}
	}
	if fault := RefFault("HEAD/a"); fault != "" {
		t.Errorf("outside refs/: %s", fault)
	}
}
