package browse

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// page is the address of a page.
type page struct {
	url   string // empty if not known yet
	local bool   // in the container
	host  string // as the container dials it
	port  int
}

// parsePage reads a spec's URL.
func parsePage(address string) (p page, err error) {
	if address == "" {
		return page{local: true, host: "127.0.0.1"}, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return p, fmt.Errorf("cannot read the page's address: %w", err)
	}
	p = page{url: address, host: u.Hostname()}
	switch p.host {
	case "127.0.0.1", "::1", "localhost":
		p.local = true
	}
	switch port := u.Port(); {
	case port != "":
		p.port, err = strconv.Atoi(port)
	case u.Scheme == "https":
		p.port = 443
	default:
		p.port = 80
	}
	if err != nil || p.port < 1 || p.port > 65535 {
		return p, fmt.Errorf("cannot read the page's address: %.100q is no port", u.Port())
	}
	return p, nil
}

func (p page) addr() string { return net.JoinHostPort(p.host, strconv.Itoa(p.port)) }

// listens reports whether a page's address accepts connections.
func (k *look) listens(ctx context.Context, p page) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for _, host := range p.hosts() {
		conn, err := k.step.Host.Dial(ctx, net.JoinHostPort(host, strconv.Itoa(p.port)))
		if err == nil {
			conn.Close()
			return true
		}
	}
	return false
}

// hosts returns the addresses that a browser tries for a page.
func (p page) hosts() []string {
	if p.host == "localhost" {
		return []string{"127.0.0.1", "::1"}
	}
	return []string{p.host}
}

// await waits until the page's port listens, or finds the port if there is no URL.
func (k *look) await(ctx context.Context, a *app, p *page) error {
	wait, cancel := context.WithTimeout(ctx, time.Duration(k.spec.Wait))
	defer cancel()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	if p.url == "" && a == nil {
		return unverified("the spec has neither a URL nor something to start: there is no page to look at")
	}
	var ended <-chan struct{} // never, without an app
	if a != nil {
		ended = a.done
	}
	var best found
	for {
		if p.url != "" {
			if k.listens(wait, *p) {
				return nil
			}
		} else if best = k.find(wait, a, best); best.rank > 0 && (best.rank == isPage || time.Since(best.at) > betterWithin) {
			*p = best.page
			return nil
		}
		select {
		case <-tick.C:
		case <-k.step.Host.Done():
			return containers.ErrGone
		case <-ended:
			if a.err != nil {
				return a.err
			}
			return fails("%s: `%s` %s", p.nothing(), a.line, howEnded(a.exit))
		case <-wait.Done():
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return fails("%s", k.nothingYet(ctx, a, *p))
		}
	}
}

// nothing returns the sentence that nothing listens at a page's address.
func (p page) nothing() string {
	if p.url == "" {
		return "nothing that speaks HTTP listens"
	}
	return "nothing listens at " + p.addr()
}

// nothingYet returns the sentence that nothing listens after all the time there was, and which ports listen instead.
func (k *look) nothingYet(ctx context.Context, a *app, p page) string {
	text := fmt.Sprintf("%s after %v", p.nothing(), time.Duration(k.spec.Wait))
	var before []int
	if a != nil {
		text += fmt.Sprintf(", and `%s` still runs", a.line)
		before = a.before
	}
	now, err := k.step.Host.Ports(ctx)
	if err != nil {
		return text
	}
	others := slices.DeleteFunc(now, func(port int) bool { return slices.Contains(before, port) })
	switch {
	case slices.Contains(others, p.port):
		text += "; it listens at another address than " + p.host
	case len(others) > 0:
		text += "; it listens at " + joinPorts(others)
	}
	return text
}

func joinPorts(ports []int) string {
	var list []string
	for _, p := range ports[:min(len(ports), maxApps)] {
		list = append(list, strconv.Itoa(p))
	}
	return "port " + strings.Join(list, ", ")
}

// found is the best port so far of an application whose port is not known.
type found struct {
	page
	rank int
	at   time.Time // when the first one was found
}

// Ranks of answers, by how much they look like a page's.
const (
	noHTTP = iota
	isError
	isSomething
	isPage
)

// find looks for the port that an application listens on by now. Of several it takes the one that answers HTTP, best with a page. Another
// port may be a debugger's.
func (k *look) find(ctx context.Context, a *app, best found) found {
	ports, err := k.step.Host.Ports(ctx)
	if err != nil {
		return best
	}
	ports = slices.DeleteFunc(ports, func(port int) bool { return slices.Contains(a.before, port) })
	for _, port := range ports[:min(len(ports), maxApps)] {
		for _, host := range []string{"127.0.0.1", "::1"} {
			addr := net.JoinHostPort(host, strconv.Itoa(port))
			rank := k.speaksHTTP(ctx, addr)
			if rank <= best.rank {
				continue
			}
			if best.rank == noHTTP {
				best.at = time.Now()
			}
			best.rank, best.page = rank, page{url: "http://" + addr + "/", local: true, host: host, port: port}
		}
	}
	return best
}

// speaksHTTP asks an address for its page, and returns the rank of the answer.
func (k *look) speaksHTTP(ctx context.Context, addr string) int {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return k.step.Host.Dial(ctx, addr)
		}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return noHTTP
	}
	req.Header.Set("Accept", "text/html")
	res, err := tr.RoundTrip(req)
	if err != nil {
		return noHTTP
	}
	res.Body.Close()
	switch html := strings.HasPrefix(res.Header.Get("Content-Type"), "text/html"); {
	case html && res.StatusCode < 400:
		return isPage
	case html || res.StatusCode < 400:
		return isSomething
	}
	return isError
}
