package replica

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Inner returns the handler of the inner address, whose listener has the configuration of [Front.TLS]. outside serves
// requests that came to a public address of another replica, and local those that came by its unix socket.
func (f *Front) Inner(outside, local http.Handler) http.Handler {
	own := http.NewServeMux()
	own.HandleFunc("GET /replica/find", f.serveFind)
	own.HandleFunc("GET /replica/keys", f.serveKeys)
	own.HandleFunc("POST /replica/take", f.serveTake)
	own.HandleFunc("POST /replica/install", f.serveInstall)
	own.HandleFunc("POST /replica/artifact", f.serveArtifact)
	own.HandleFunc("POST /replica/records", f.serveRecords)
	own.HandleFunc("POST /replica/token", f.serveToken)
	own.HandleFunc("POST /replica/revoked", f.serveRevoked)
	own.HandleFunc("POST /replica/session", f.serveSession)
	own.HandleFunc("POST /replica/again", f.serveAgain)
	own.HandleFunc("POST /replica/room", f.serveRoom)
	own.HandleFunc("POST /replica/ssh", f.serveSSH)
	own.HandleFunc("POST /replica/question", f.serveQuestion)
	own.HandleFunc("POST /replica/stream", f.serveStream)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, repo, client := r.Header.Get(headerFrom), r.Header.Get(headerRepo), r.Header.Get(headerClient)
		byLocal, secure := r.Header.Get(headerLocal) != "", r.Header.Get(headerSecure) != ""
		if to := r.Header.Get(headerTo); to != f.Group.Name || from == "" {
			f.refuse(w, fmt.Sprintf("this is the replica %s, not %.100q", f.Group.Name, to))
			return
		}
		if client == "" { // of the replica itself
			own.ServeHTTP(w, r)
			return
		}
		if repo != "" && !f.owns(r, repo) {
			f.refuse(w, fmt.Sprintf("the replica %s does not own %.200q", f.Group.Name, repo))
			return
		}
		for _, name := range headers {
			r.Header.Del(name)
		}
		r.Header.Del("Expect") // the body is asked for by reading it
		if r.RemoteAddr = client; !secure {
			r.TLS = nil // cookies and links have other names without TLS
		}
		r = r.WithContext(route.WithVia(r.Context(), from))
		if repo != "" && !isMove(r) {
			if f.passGate(r.Context(), repo, isPush(r)) != nil {
				return // the client has gone
			}
			if !f.owns(r, repo) { // it was moved meanwhile
				f.refuse(w, fmt.Sprintf("the replica %s does not own %.200q any more", f.Group.Name, repo))
				return
			}
		}
		if lost := f.answerLost(r, repo); lost != nil {
			lost.ServeHTTP(w, r)
			return
		}
		if byLocal {
			local.ServeHTTP(w, r)
			return
		}
		outside.ServeHTTP(w, r)
	})
}

// owns reports whether this replica owns a repository, and may say so.
func (f *Front) owns(r *http.Request, repo string) bool {
	if f.Group.CheckLease() != nil {
		return false
	}
	owner, ok := f.Group.Find(repo)
	if !ok || !owner.Self {
		owner, ok = f.Group.Look(r.Context(), repo)
	}
	if ok && owner.Self {
		f.arrive(r.Context(), repo)
	}
	return ok && owner.Self
}

// refuse answers a request that is for another replica. The sender may try again elsewhere.
func (f *Front) refuse(w http.ResponseWriter, why string) {
	f.stats.refused.Add(1)
	http.Error(w, why, http.StatusMisdirectedRequest)
}

func (f *Front) serveFind(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	answer(w, found{f.local(r.Context(), gather.Work{Caller: q.Get("caller"), Run: q.Get("run"), Tournament: q.Get("tournament"), Link: q.Get("link")})})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the sender may be gone
}
