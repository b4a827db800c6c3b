package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/cloudflaretest"
	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
	"github.com/ramus-dev/ramus/internal/standin/hetznertest"
	"github.com/rogpeppe/go-internal/testscript"
)

type cloudKey struct{}

type dnsKey struct{}

// cloudCommand drives a stand-in of Hetzner Cloud.
//
//	cloud              start it; its address is $CLOUD, and its token the value of $CANARY
//	cloud token        put the bootstrap token of the last machine into $BOOTSTRAP
//	cloud boot DIR     write the files of the last machine below DIR, as cloud-init does, for the address $URL
//	cloud machines N   check the number of machines
//	cloud wait N       wait until the cloud has N machines
//	cloud add NAME     add a machine with the label of the server ramus
//	cloud full, ok     refuse to make machines; make them again
//	cloud dns          start a stand-in of Cloudflare for example.org; its address is $DNS
//	cloud names RE     wait until the records of DNS, one a line, match
func cloudCommand(ts *testscript.TestScript, neg bool, args []string) {
	own := ts.Value(cloudKey{}).(**hetznertest.Server)
	switch s := *own; {
	case len(args) > 0 && args[0] == "dns":
		d := cloudflaretest.New(ts.Getenv("CANARY"), "example.org")
		ts.Defer(d.Close)
		*ts.Value(dnsKey{}).(**cloudflaretest.Server) = d
		ts.Setenv("DNS", d.URL)
	case len(args) > 0 && args[0] == "names":
		d, want := *ts.Value(dnsKey{}).(**cloudflaretest.Server), regexp.MustCompile(args[1])
		for end := time.Now().Add(20 * time.Second); !want.MatchString(strings.Join(d.Records(), "\n")); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				ts.Fatalf("the records are %q", d.Records())
			}
		}
	case len(args) == 0:
		s = hetznertest.New(ts.Getenv("CANARY"))
		ts.Defer(s.Close)
		*own = s
		ts.Setenv("CLOUD", s.URL)
	case args[0] == "token":
		all := s.Machines()
		if len(all) == 0 {
			ts.Fatalf("there is no machine")
		}
		m := regexp.MustCompile(`/api/bootstrap/(\w+)`).FindStringSubmatch(all[len(all)-1].UserData)
		if m == nil {
			ts.Fatalf("the description has no token")
		}
		ts.Setenv("BOOTSTRAP", m[1])
	case args[0] == "boot":
		all := s.Machines()
		if onCluster() { // its kubelet may run in the cluster's namespaces
			node := all[len(all)-1].Labels["ramus-node"]
			ts.Defer(func() {
				out, err := exec.Command(filepath.Join(ts.Getenv("EXAMPLES"), "../scripts/cluster.sh"), "leave", node).CombinedOutput()
				if err != nil {
					ts.Logf("cannot end the node %s: %v: %s", node, err, out)
				}
			})
		}
		ts.Check(cloudtest.WriteFiles(all[len(all)-1].UserData, ts.MkAbs(args[1]), ts.Getenv("URL")))
	case args[0] == "machines":
		if want, err := strconv.Atoi(args[1]); err != nil || len(s.Machines()) != want {
			ts.Fatalf("there are %d machines", len(s.Machines()))
		}
	case args[0] == "wait":
		want, err := strconv.Atoi(args[1])
		ts.Check(err)
		for end := time.Now().Add(3 * time.Minute); len(s.Machines()) != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				ts.Fatalf("there are %d machines", len(s.Machines()))
			}
		}
	case args[0] == "add":
		s.Add(args[1], map[string]string{"ramus-server": "ramus", "ramus-node": "node-gone"})
	case args[0] == "full":
		s.Fail(cloudtest.Faults{Full: true})
	case args[0] == "ok":
		s.Fail(cloudtest.Faults{})
	default:
		ts.Fatalf("cloud: unknown %q", args[0])
	}
}
