package gitd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitfile"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/protocol"
) // access is the repository and the grant of one request.
type access struct {
	name       string // of the repository
	dir        string
	grant      Grant
	client     string // the client that the git children count for
	protocol   string // GIT_PROTOCOL for the child, "" means protocol v0
	repo       *Repo  // nil if the repository is served as it is on disk, by git
	direct     bool   // protocol v2, answered in process
	repoConfig gitfile.Config
	leaked     func([]Leak) // called with the secrets of a push that was refused, may be nil
	options    bool         // a push may have options, see Server.Expect
}

// harmlessFaults are faults of objects that fsck ignores in a push. Old tools made them, and they do no harm.
var harmlessFaults = []string{"badtimezone", "missingspacebeforedate", "zeropaddedfilemode"}

// config returns the configuration of git for this access. Git reads it after that of the repository, so it leaves
// out keys that the repository decides.
func (a access) config(l Limits) []string {
	c := []string{
		fmt.Sprintf("receive.maxInputSize=%d", a.repoConfig.AtMost("receive.maxinputsize", l.PackBytes)),
		// The parts of packs that git maps have to fit into its address space together with the objects in use.
		"core.packedGitWindowSize=64m",
		fmt.Sprintf("core.packedGitLimit=%d", l.Memory/4),
		"pack.threads=2",
	}
	if !a.grant.Force {
		c = append(c, "receive.denyNonFastForwards=true")
	}
	if !a.grant.Delete {
		c = append(c, "receive.denyDeletes=true")
	}

	unless := func(key, value string, also ...string) {
		if !a.repoConfig.Names(key) && !slices.ContainsFunc(also, a.repoConfig.Names) {
			c = append(c, key+"="+value)
		}
	}
	unless("receive.unpacklimit", "1",
		"transfer.unpacklimit") // a clone takes 20 times as long after 200 pushes that are kept as loose objects
	unless("receive.advertisepushoptions", strconv.FormatBool(a.options))
	unless("receive.fsckobjects", "true", "transfer.fsckobjects")
	for _, what := range harmlessFaults {
		unless("receive.fsck."+what, "ignore")
	}
	unless("uploadpack.allowfilter", "true")
	if len(a.grant.Read) == 0 {
		// A client that may read all refs may read all objects, as it may with protocol v2. Fetches of a partial
		// clone need it. A repository may itself say in any of three ways which objects protocol v0 may ask for.
		unless("uploadpack.allowanysha1inwant", "true", "uploadpack.allowreachablesha1inwant",
			"uploadpack.allowtipsha1inwant")
		return c
	}
	c = append(c,
		"uploadpack.allowAnySHA1InWant=false",
		"uploadpack.allowReachableSHA1InWant=false",
		"uploadpack.allowTipSHA1InWant=false",
	)
	// Git takes the last pattern that matches a ref.
	show := func(patterns []string, own bool) {
		for _, p := range patterns {
			if strings.HasPrefix(p, grant.OwnRefs) == own {
				c = append(c, "transfer.hideRefs=!"+strings.TrimSuffix(p, "/*"))
			}
		}
	}
	c = append(c, "transfer.hideRefs=refs")
	show(a.grant.Write, false)
	c = append(c, "transfer.hideRefs="+strings.TrimSuffix(grant.OwnRefs, "/"))
	show(a.grant.Read, false)
	show(a.grant.Read, true)
	show(a.grant.Write, true)
	if a.grant.Veil != nil {
		for _, p := range a.grant.Veil.Hidden() {
			c = append(c, "transfer.hideRefs="+p)
		}
	}
	if head, err := readHead(a.dir); err != nil || !a.grant.Shows(head) {
		c = append(c, "transfer.hideRefs=HEAD")
	}
	if a.options {
		c = append(c, "transfer.hideRefs=!"+strings.TrimSuffix(AskRefs, "/"))
	}
	return c
}

// env returns additional environment variables of the child.
func (a access) env() []string {
	if a.protocol == "" {
		return nil
	}
	return []string{"GIT_PROTOCOL=" + a.protocol}
}

// refusalOf returns the reason why the grant does not allow a command, or "".
func (a access) refusalOf(c protocol.Command) string {
	if CheckRef(c.Ref) != nil {
		return "not a valid ref name"
	}
	switch {
	case a.options && asksForWork(c.Ref):
		return "" // it is removed at once, see forget
	case !a.grant.Writes(c.Ref):
		return "not allowed: " + a.describeScope()
	case c.Deletes() && !a.grant.Delete:
		return "not allowed: this token may not delete refs"
	case !c.Creates() && !c.Deletes() && !a.grant.Force && !strings.HasPrefix(c.Ref, "refs/heads/"):
		// Outside of refs/heads/ git knows no fast-forward. Each change is a forced one.
		return "not allowed: this token may not move tags and notes, only add them"
	}
	return ""
}

// describeScope says which refs the grant may write.
func (a access) describeScope() string {
	if n := len(a.grant.Write); n > 3 {
		return fmt.Sprintf("this token may write only %s and %d more", strings.Join(a.grant.Write[:3], ", "), n-3)
	}
	return "this token may write only " + strings.Join(a.grant.Write, ", ")
}

// checkEnabled returns an error if the repository does not permit reading or writing at all.
func (a access) checkEnabled(s *Server, write bool) error {
	if !s.OwnConfig {
		return nil
	}
	if write && !a.repoConfig.Flag("http.receivepack", true) {
		return errors.New("pushing to this repository is switched off (http.receivepack)")
	}
	if !write && !a.repoConfig.Flag("http.uploadpack", true) {
		return errors.New("reading this repository is switched off (http.uploadpack)")
	}
	return nil
}
