package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// row is the expected security of one route.
type row struct {
	access route.Access
	// of is the kind of object of the route. "repo" is one repository or a part of one, which bearers for another
	// repository do not find. "list" is a list, which is empty for them. "admin" is a page of administrators. "own" is an
	// object of a caller, of which the callers here have none. "" is none of these.
	of   string
	path string // without wildcards
	body string
}

// The classes of pages and of their forms.
const accessPage, accessForm = route.AccessPage, route.AccessPage

// expected repeats the security of all routes independently of the table of routes. A change of the table must be
// repeated here, so that nobody gets access by accident.
var expected = map[string]row{
	"GET /health":                      {route.AccessPublic, "", "/health", ""},
	"GET /metrics":                     {route.AccessMetrics, "", "/metrics", ""},
	"GET /.well-known/allowed_signers": {route.AccessPublic, "", "/.well-known/allowed_signers", ""},
	"GET /.well-known/jwks.json":       {route.AccessPublic, "", "/.well-known/jwks.json", ""},
	"GET /api/openapi.json":            {route.AccessPublic, "", "/api/openapi.json", ""},
	"GET /api/schema/workflow":         {route.AccessPublic, "", "/api/schema/workflow", ""},
	"GET /api/whoami":                  {route.AccessRead, "", "/api/whoami", ""},
	"GET /api/library":                 {route.AccessRead, "", "/api/library", ""},
	"GET /api/tasks":                   {route.AccessRead, "list", "/api/tasks", ""},
	"POST /api/tasks": {route.AccessWrite, "repo", "/api/tasks",
		`{"repo":"team/app","description":"x","key":"x"}`},
	"GET /api/tasks/{task}":        {route.AccessRead, "repo", "/api/tasks/TASK", ""},
	"POST /api/tasks/{task}/retry": {route.AccessWrite, "repo", "/api/tasks/TASK/retry", ""},
	"POST /api/tasks/{task}/say": {route.AccessWrite, "repo", "/api/tasks/TASK/say",
		`{"text":"go on"}`},
	"DELETE /api/tasks/{task}": {route.AccessWrite, "repo", "/api/tasks/TASK", ""},
	"GET /engineer/tasks":      {route.AccessRead, "list", "/engineer/tasks", ""},
	"POST /engineer/tasks": {route.AccessWrite, "repo", "/engineer/tasks",
		`{"repo":"team/app","description":"x","key":"x"}`},
	"GET /engineer/tasks/{task}":        {route.AccessRead, "repo", "/engineer/tasks/TASK", ""},
	"POST /engineer/tasks/{task}/retry": {route.AccessWrite, "repo", "/engineer/tasks/TASK/retry", ""},
	"POST /engineer/tasks/{task}/say": {route.AccessWrite, "repo", "/engineer/tasks/TASK/say",
		`{"text":"go on"}`},
	"DELETE /engineer/tasks/{task}": {route.AccessWrite, "repo", "/engineer/tasks/TASK", ""},
	"POST /mcp": {route.AccessRead, "", "/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`},
	"GET /mcp":    {route.AccessRead, "", "/mcp", ""},
	"DELETE /mcp": {route.AccessRead, "", "/mcp", ""},
	"POST /api/check": {route.AccessRead, "repo", "/api/check?repo=team/app",
		"id: x\nnodes: [{id: a, run: 'true'}]"},
	"GET /api/repos":        {route.AccessRead, "list", "/api/repos", ""},
	"POST /api/repos":       {route.AccessAdmin, "", "/api/repos", `{"name":"team/app"}`},
	"GET /api/repos/{repo}": {route.AccessRead, "repo", "/api/repos/team%2Fapp", ""},
	"DELETE /api/repos/{repo}": {route.AccessAdmin, "repo",
		"/api/repos/team%2Fapp?force=perhaps", ""}, // bad input, so that the repository stays
	"POST /api/repos/{repo}/rename": {route.AccessAdmin, "repo", "/api/repos/team%2Fapp/rename",
		`{"name":"../other"}`},
	"POST /api/repos/{repo}/refresh": {route.AccessWrite, "repo", "/api/repos/team%2Fapp/refresh", ""},
	"GET /api/repos/{repo}/bases":    {route.AccessRead, "repo", "/api/repos/team%2Fapp/bases", ""},
	"GET /api/credentials":           {route.AccessRead, "own", "/api/credentials", ""},
	"POST /api/credentials": {route.AccessWrite, "own", "/api/credentials",
		`{"credentials":[{"name":"A","value":"x"}]}`},
	"GET /api/credentials/{credential}": {route.AccessRead, "own", "/api/credentials/none", ""},
	"PATCH /api/credentials/{credential}": {route.AccessWrite, "own", "/api/credentials/none",
		`{"is_active":true}`},
	"POST /api/credentials/{credential}/verify": {route.AccessWrite, "own", "/api/credentials/none/verify", "{}"},
	"DELETE /api/credentials/{credential}":      {route.AccessWrite, "own", "/api/credentials/none", ""},
	"GET /api/tokens":                           {route.AccessRead, "own", "/api/tokens", ""},
	"POST /api/tokens/own":                      {route.AccessRead, "own", "/api/tokens/own", `{"scopes":["none"]}`},
	"DELETE /api/tokens/{token}":                {route.AccessRead, "own", "/api/tokens/none", ""},
	"POST /api/keys/rotate":                     {route.AccessAdmin, "", "/api/keys/rotate", "{}"},
	"GET /api/repos/{repo}/config":              {route.AccessRead, "repo", "/api/repos/team%2Fapp/config", ""},
	"POST /api/callers/{caller}/config": {route.AccessWrite, "repo",
		"/api/callers/run:subject/config", "{}"},
	"GET /api/repos/{repo}/log": {route.AccessRead, "repo", "/api/repos/team%2Fapp/log", ""},
	"GET /api/repos/{repo}/diff": {route.AccessRead, "repo",
		"/api/repos/team%2Fapp/diff?to=main", ""},
	"GET /api/repos/{repo}/changes": {route.AccessRead, "repo",
		"/api/repos/team%2Fapp/changes?to=main", ""},
	"GET /api/repos/{repo}/tree": {route.AccessRead, "repo",
		"/api/repos/team%2Fapp/tree?path=a", ""},
	"GET /api/repos/{repo}/file": {route.AccessRead, "repo",
		"/api/repos/team%2Fapp/file?path=a/b", ""},
	"GET /api/search":                            {route.AccessRead, "repo", "/api/search?q=umbra&repo=team%2Fapp", ""},
	"GET /api/radar":                             {route.AccessRead, "repo", "/api/radar?repo=team%2Fapp", ""},
	"GET /api/verify":                            {route.AccessRead, "repo", "/api/verify?repo=team%2Fapp", ""},
	"GET /api/why":                               {route.AccessRead, "repo", "/api/why?repo=team%2Fapp&path=a%2Fb&line=1", ""},
	"POST /api/runs/{run}/undo":                  {route.AccessWrite, "repo", "/api/runs/RUN/undo", `{"dry":true}`},
	"POST /api/runs/{run}/pick":                  {route.AccessWrite, "repo", "/api/runs/RUN/pick", `{"dry":true}`},
	"POST /api/runs/{run}/replay":                {route.AccessWrite, "repo", "/api/runs/RUN/replay", `{"dry":true}`},
	"POST /api/forks":                            {route.AccessWrite, "repo", "/api/forks", `{"of":"run:subject","dry":true}`},
	"GET /api/runs/{run}/replay":                 {route.AccessRead, "repo", "/api/runs/RUN/replay", ""},
	"GET /api/runs/{run}/export":                 {route.AccessRead, "repo", "/api/runs/RUN/export", ""},
	"GET /api/callers/{caller}/export":           {route.AccessRead, "repo", "/api/callers/run:subject/export", ""},
	"GET /api/runs/{run}/cast":                   {route.AccessRead, "repo", "/api/runs/RUN/cast", ""},
	"POST /api/runs/{run}/export/link":           {route.AccessWrite, "repo", "/api/runs/RUN/export/link", ""},
	"GET /evidence/{caller}/{run}/export.bundle": {route.AccessSigned, "repo", "/evidence/NAME/export.bundle", ""},
	"POST /api/import":                           {route.AccessAdmin, "", "/api/import?repo=none", "no bundle"},
	"POST /api/bisect":                           {route.AccessWrite, "repo", "/api/bisect", `{"repo":"team/app","command":{"shell":"true"}}`},
	"POST /api/tournaments": {route.AccessWrite, "repo", "/api/tournaments",
		`{"repo":"team/app","task":"x","agents":["none"],"dry":true}`},
	"GET /api/tournaments":                     {route.AccessRead, "list", "/api/tournaments", ""},
	"GET /api/tournaments/{tournament}":        {route.AccessRead, "repo", "/api/tournaments/run-subject-cup", ""},
	"GET /api/tournaments/{tournament}/follow": {route.AccessRead, "repo", "/api/tournaments/run-subject-cup/follow", ""},
	"POST /api/tournaments/{tournament}/judge": {route.AccessWrite, "repo", "/api/tournaments/run-subject-cup/judge", ""},
	"POST /api/tournaments/{tournament}/take": {route.AccessWrite, "repo", "/api/tournaments/run-subject-cup/take",
		`{"entry":"1"}`},
	"GET /api/runs": {route.AccessRead, "list", "/api/runs", ""},
	"POST /api/runs": {route.AccessWrite, "repo", "/api/runs",
		`{"repo":"team/app","command":{"shell":"true"}}`},
	"GET /api/runs/{run}":        {route.AccessRead, "repo", "/api/runs/RUN", ""},
	"GET /api/runs/{run}/events": {route.AccessRead, "repo", "/api/runs/RUN/events", ""},
	"GET /api/runs/{run}/output/{step}/{stream}": {route.AccessRead, "repo",
		"/api/runs/RUN/output/exec/stdout", ""},
	"GET /api/runs/{run}/evidence": {route.AccessRead, "repo", "/api/runs/RUN/evidence", ""},
	"POST /api/runs/{run}/stop":    {route.AccessWrite, "repo", "/api/runs/RUN/stop", ""},
	"POST /api/runs/{run}/retry":   {route.AccessWrite, "repo", "/api/runs/RUN/retry", ""},
	"POST /api/runs/{run}/say": {route.AccessWrite, "repo", "/api/runs/RUN/say",
		`{"text":"go on"}`},
	"POST /api/runs/{run}/decide": {route.AccessWrite, "repo", "/api/runs/RUN/decide",
		`{"approved":true}`},
	"GET /api/callers":          {route.AccessRead, "list", "/api/callers", ""},
	"GET /api/callers/{caller}": {route.AccessRead, "repo", "/api/callers/run:subject", ""},
	"POST /api/callers/{caller}/exec": {route.AccessWrite, "repo", "/api/callers/run:subject/exec",
		`{"command":{"shell":"true"}}`},
	"DELETE /api/callers/{caller}":   {route.AccessWrite, "repo", "/api/callers/run:subject-two", ""},
	"GET /api/callers/{caller}/log":  {route.AccessRead, "repo", "/api/callers/run:subject/log", ""},
	"GET /api/callers/{caller}/diff": {route.AccessRead, "repo", "/api/callers/run:subject/diff", ""},
	"GET /api/callers/{caller}/changes": {route.AccessRead, "repo",
		"/api/callers/run:subject/changes", ""},
	"POST /api/callers/{caller}/merge": {route.AccessWrite, "repo",
		"/api/callers/run:subject/merge", ""},
	"POST /api/callers/{caller}/rollback": {route.AccessWrite, "repo",
		"/api/callers/run:subject/rollback", `{"to":"main"}`},
	"POST /api/callers/{caller}/stop": {route.AccessWrite, "repo", "/api/callers/run:subject/stop", ""},
	"GET /api/callers/{caller}/sessions": {route.AccessRead, "repo",
		"/api/callers/run:subject/sessions", ""},
	"GET /api/callers/{caller}/processes": {route.AccessRead, "repo",
		"/api/callers/run:subject/processes", ""},
	"GET /api/callers/{caller}/processes/{process}/output": {route.AccessRead, "repo",
		"/api/callers/run:subject/processes/1/output", ""},
	"DELETE /api/callers/{caller}/processes/{process}": {route.AccessWrite, "repo",
		"/api/callers/run:subject/processes/1", ""},
	"GET /api/callers/{caller}/terminals": {route.AccessRead, "repo",
		"/api/callers/run:subject/terminals", ""},
	"POST /api/callers/{caller}/terminals": {route.AccessWrite, "repo",
		"/api/callers/run:subject/terminals", `{"name":"No name"}`},
	"DELETE /api/callers/{caller}/terminals/{terminal}": {route.AccessWrite, "repo",
		"/api/callers/run:subject/terminals/1", ""},
	"POST /api/terminal/token": {route.AccessWrite, "repo",
		"/api/terminal/token?of=run:subject", `{"workspaceId":"run:subject"}`},
	"GET /api/callers/{caller}/tabs": {route.AccessRead, "repo", "/api/callers/run:subject/tabs", ""},
	"GET /api/callers/{caller}/shell": {route.AccessWrite, "repo",
		"/api/callers/run:subject/shell", ""},
	"POST /terminal/token": {route.AccessPage, "form", "/terminal/token",
		`{"workspaceId":"run:subject"}`},
	"GET /workspaces/{caller}/tabs":       {route.AccessPage, "page", "/workspaces/run-subject/tabs", ""},
	"POST /workspaces/{caller}/terminals": {route.AccessPage, "form", "/workspaces/run-subject/terminals", `{}`},
	"POST /workspaces/{caller}/terminals/{terminal}/close": {route.AccessPage, "form",
		"/workspaces/run-subject/terminals/1/close", ""},
	"GET /workspaces/{caller}/shell": {route.AccessSocket, "socket",
		"/workspaces/run-subject/shell", ""},
	"GET /api/callers/{caller}/ports": {route.AccessRead, "repo", "/api/callers/run:subject/ports", ""},
	"POST /api/callers/{caller}/ports/{port}/connect": {route.AccessWrite, "repo",
		"/api/callers/run:subject/ports/5173/connect", ""},
	"GET /api/watch":                             {route.AccessRead, "repo", "/api/watch?caller=run:subject", ""},
	"POST /api/runs/{run}/link":                  {route.AccessRead, "repo", "/api/runs/RUN/link", ""},
	"GET /evidence/{caller}/{run}":               {route.AccessSigned, "repo", "/evidence/NAME", ""},
	"GET /evidence/{caller}/{run}/status.json":   {route.AccessSigned, "repo", "/evidence/NAME/status.json", ""},
	"GET /evidence/{caller}/{run}/bundle.tar.gz": {route.AccessSigned, "repo", "/evidence/NAME/bundle.tar.gz", ""},
	"GET /evidence/{caller}/{run}/files/{name...}": {route.AccessSigned, "repo",
		"/evidence/NAME/files/journal.jsonl", ""},
	"GET /trace/{file...}":                       {route.AccessPublic, "", "/trace/index.html", ""},
	"GET /preview/{caller}/{port}/{$}":           {route.AccessSigned, "repo", "/preview/run:subject/5173/", ""},
	" /preview/{caller}/{port}/{pass}/{path...}": {route.AccessPreview, "", "/preview/run:subject/5173/1.x/", ""},
	"POST /hooks/deploy": {route.AccessHook, "", "/hooks/deploy",
		`{"repo":"team/app","commit":"0000000000000000000000000000000000000000"}`},
	"POST /hooks/{name}":                  {route.AccessHook, "", "/hooks/nightly", `{}`},
	"GET /api/triggers":                   {route.AccessRead, "", "/api/triggers", ""},
	"POST /api/triggers/{trigger}/run":    {route.AccessAdmin, "", "/api/triggers/nightly/run", "{}"},
	"POST /api/triggers/{trigger}/pause":  {route.AccessAdmin, "", "/api/triggers/nightly/pause", ""},
	"POST /api/triggers/{trigger}/resume": {route.AccessAdmin, "", "/api/triggers/nightly/resume", ""},
	"POST /api/tokens": {route.AccessAdmin, "", "/api/tokens",
		`{"subject":"x","scopes":["read"]}`},
	"POST /api/reindex":                                      {route.AccessAdmin, "", "/api/reindex", ""},
	"POST /api/prune":                                        {route.AccessAdmin, "", "/api/prune", `{"dry_run":true}`},
	"POST /api/reload":                                       {route.AccessAdmin, "", "/api/reload", ""},
	"GET /api/quotas":                                        {route.AccessAdmin, "", "/api/quotas", ""},
	"GET /api/replicas":                                      {route.AccessAdmin, "", "/api/replicas", ""},
	"GET /api/replicas/losses":                               {route.AccessAdmin, "", "/api/replicas/losses", ""},
	"POST /api/repos/{repo}/move":                            {route.AccessAdmin, "repo", "/api/repos/team%2Fapp/move", `{"to":"x"}`},
	"GET /api/standby":                                       {route.AccessAdmin, "", "/api/standby", ""},
	"POST /api/standby/rounds":                               {route.AccessAdmin, "", "/api/standby/rounds", `{"name":"x"}`},
	"GET /api/standby/file":                                  {route.AccessAdmin, "", "/api/standby/file?session=x&path=y", ""},
	"GET /api/standby/git/{path...}":                         {route.AccessAdmin, "", "/api/standby/git/x.git/info/refs", ""},
	"POST /api/standby/git/{path...}":                        {route.AccessAdmin, "", "/api/standby/git/x.git/git-upload-pack", ""},
	"POST /api/standby/fence":                                {route.AccessAdmin, "", "/api/standby/fence", `{"epoch":0}`},
	"POST /api/nodes":                                        {route.AccessAdmin, "", "/api/nodes", "{}"},
	"GET /api/leaked-machines":                               {route.AccessAdmin, "", "/api/leaked-machines", ""},
	"GET /api/nodes/{node}/boot-log":                         {route.AccessAdmin, "", "/api/nodes/local/boot-log", ""},
	"POST /api/bootstrap/{token}":                            {route.AccessHook, "", "/api/bootstrap/x", ""},
	"POST /api/nodes/{node}/ready":                           {route.AccessHook, "", "/api/nodes/node-x/ready", ""},
	"POST /api/nodes/{node}/heartbeat":                       {route.AccessHook, "", "/api/nodes/node-x/heartbeat", ""},
	"GET /api/nodes/{node}/ranges":                           {route.AccessHook, "", "/api/nodes/node-x/ranges", ""},
	"POST /api/nodes/{node}/boot-log":                        {route.AccessHook, "", "/api/nodes/node-x/boot-log", "x"},
	"GET /api/agent":                                         {route.AccessPublic, "", "/api/agent", ""},
	"GET /api/agent/install.sh":                              {route.AccessPublic, "", "/api/agent/install.sh", ""},
	"GET /api/agent/SHA256SUMS":                              {route.AccessPublic, "", "/api/agent/SHA256SUMS", ""},
	"GET /api/agent/SHA256SUMS.sig":                          {route.AccessPublic, "", "/api/agent/SHA256SUMS.sig", ""},
	"GET /api/agent/{arch}/{program}":                        {route.AccessPublic, "", "/api/agent/amd64/none", ""},
	"POST /api/backup":                                       {route.AccessAdmin, "", "/api/backup", `{"dir":"relative"}`},
	"POST /slack/events":                                     {route.AccessHook, "", "/slack/events", "{}"},
	"POST /webhooks/slack":                                   {route.AccessHook, "", "/webhooks/slack", "{}"},
	"POST /webhooks/github":                                  {route.AccessHook, "", "/webhooks/github", "{}"},
	"POST /webhooks/gitlab":                                  {route.AccessHook, "", "/webhooks/gitlab", "{}"},
	"POST /webhooks/gitea":                                   {route.AccessHook, "", "/webhooks/gitea", "{}"},
	"POST /webhooks/jira":                                    {route.AccessHook, "", "/webhooks/jira", "{}"},
	"POST /webhooks/linear":                                  {route.AccessHook, "", "/webhooks/linear", "{}"},
	"POST /webhooks/bitbucket":                               {route.AccessHook, "", "/webhooks/bitbucket", "{}"},
	"GET /api/github/installations":                          {route.AccessAdmin, "", "/api/github/installations", ""},
	"GET /api/github/repos":                                  {route.AccessAdmin, "", "/api/github/repos", ""},
	"GET /auth/github":                                       {route.AccessPublic, "", "/auth/github", ""},
	"GET /auth/github/callback":                              {route.AccessPublic, "", "/auth/github/callback", ""},
	"GET /{$}":                                               {route.AccessPublic, "", "/", ""},
	"GET /assets/{file}":                                     {route.AccessPublic, "", "/assets/icon.svg", ""},
	"GET /live":                                              {route.AccessSocket, "socket", "/live", ""},
	"GET /dashboard":                                         {accessPage, "page", "/dashboard", ""},
	"POST /dashboard/ask":                                    {accessForm, "form", "/dashboard/ask", ""},
	"GET /workspaces":                                        {accessPage, "page", "/workspaces", ""},
	"GET /workspaces/new":                                    {accessPage, "page", "/workspaces/new", ""},
	"POST /workspaces/new":                                   {accessForm, "form", "/workspaces/new", ""},
	"GET /workspaces/{workspace}":                            {accessPage, "page", "/workspaces/run-subject", ""},
	"POST /workspaces/{workspace}/stop":                      {accessForm, "form", "/workspaces/run-subject/stop", ""},
	"POST /workspaces/{workspace}/restart":                   {accessForm, "form", "/workspaces/run-subject/restart", ""},
	"POST /workspaces/{workspace}/delete":                    {accessForm, "form", "/workspaces/run-subject/delete", ""},
	"POST /workspaces/{workspace}/privacy":                   {accessForm, "form", "/workspaces/run-subject/privacy", ""},
	"POST /workspaces/{workspace}/say":                       {accessForm, "form", "/workspaces/run-subject/say", ""},
	"POST /workspaces/{workspace}/command":                   {accessForm, "form", "/workspaces/run-subject/command", ""},
	"GET /workspaces/{workspace}/runs/{run}":                 {accessPage, "page", "/workspaces/run-subject/runs/x", ""},
	"POST /workspaces/{workspace}/runs/{run}/{action}":       {accessForm, "form", "/workspaces/run-subject/runs/x/none", ""},
	"GET /workspaces/{workspace}/timeline":                   {accessPage, "page", "/workspaces/run-subject/timeline", ""},
	"POST /workspaces/{workspace}/timeline/{action}":         {accessForm, "form", "/workspaces/run-subject/timeline/rollback", ""},
	"GET /workspaces/{workspace}/timeline/searches/{search}": {accessPage, "page", "/workspaces/run-subject/timeline/searches/x", ""},
	"GET /workspaces/{workspace}/changes":                    {accessPage, "page", "/workspaces/run-subject/changes", ""},
	"GET /workspaces/{workspace}/changes/picture":            {accessPage, "page", "/workspaces/run-subject/changes/picture?path=x", ""},
	"POST /workspaces/{workspace}/changes/{action}":          {accessForm, "form", "/workspaces/run-subject/changes/viewed", ""},
	"POST /workspaces/{workspace}/review/{action}":           {accessForm, "form", "/workspaces/run-subject/review/resolve", ""},
	"GET /workspaces/{workspace}/export":                     {accessPage, "page", "/workspaces/run-subject/export", ""},
	"POST /workspaces/{workspace}/export":                    {accessForm, "form", "/workspaces/run-subject/export", ""},
	"GET /workspaces/{workspace}/export.bundle":              {accessPage, "page", "/workspaces/run-subject/export.bundle", ""},
	"GET /workspaces/{workspace}/runs/{run}/cast":            {accessPage, "page", "/workspaces/run-subject/runs/x/cast", ""},
	"GET /tasks":                                             {accessPage, "page", "/tasks", ""},
	"GET /tasks/{task}":                                      {accessPage, "page", "/tasks/TASK", ""},
	"POST /tasks/{task}/{action}":                            {accessForm, "form", "/tasks/TASK/none", ""},
	"GET /repos":                                             {accessPage, "page", "/repos", ""},
	"POST /repos":                                            {accessForm, "form", "/repos", ""},
	"GET /workspaces/{workspace}/runs/{run}/output":          {accessPage, "page", "/workspaces/run-subject/runs/RUN/output", ""},
	"GET /workspaces/{workspace}/runs/{run}/output/file":     {accessPage, "page", "/workspaces/run-subject/runs/RUN/output/file?step=x&stream=stdout", ""},
	"GET /search":                                            {accessPage, "page", "/search?q=subject", ""},
	"GET /repos/{repo}/files":                                {accessPage, "page", "/repos/team%2Fapp/files", ""},
	"GET /repos/{repo}/log":                                  {accessPage, "page", "/repos/team%2Fapp/log", ""},
	"GET /repos/{repo}":                                      {accessPage, "page", "/repos/team%2Fapp", ""},
	"POST /workspaces/warm":                                  {accessForm, "form", "/workspaces/warm", ""},
	"POST /workspaces/{workspace}/warm":                      {accessForm, "form", "/workspaces/run-subject/warm", ""},
	"GET /api/shares":                                        {route.AccessRead, "own", "/api/shares", ""},
	"POST /api/shares":                                       {route.AccessWrite, "repo", "/api/shares", `{"of":"run:subject","days":1000}`},
	"DELETE /api/shares/{share}":                             {route.AccessWrite, "own", "/api/shares/none", ""},
	"GET /shared/{share}/{token}":                            {route.AccessPublic, "", "/shared/none/x", ""},
	"GET /shared/{share}/{token}/files/{name...}":            {route.AccessPublic, "", "/shared/none/x/files/y", ""},
	"GET /workspaces/{workspace}/share":                      {accessPage, "page", "/workspaces/run-subject/share", ""},
	"POST /workspaces/{workspace}/share":                     {accessForm, "form", "/workspaces/run-subject/share", ""},
	"GET /settings/links":                                    {accessPage, "page", "/settings/links", ""},
	"POST /settings/links/{share}/revoke":                    {accessForm, "form", "/settings/links/none/revoke", ""},
	"GET /repos/{repo}/branches":                             {accessPage, "page", "/repos/team%2Fapp/branches", ""},
	"GET /repos/{repo}/radar":                                {accessPage, "page", "/repos/team%2Fapp/radar", ""},
	"GET /repos/{repo}/bases":                                {accessPage, "page", "/repos/team%2Fapp/bases", ""},
	"POST /repos/{repo}/radar/tell":                          {accessForm, "form", "/repos/team%2Fapp/radar/tell", ""},
	"POST /repos/{repo}/refresh":                             {accessForm, "form", "/repos/team%2Fapp/refresh", ""},
	"GET /nodes":                                             {accessPage, "page", "/nodes", ""},
	"GET /nodes/{node}":                                      {accessPage, "page", "/nodes/local", ""},
	"GET /settings":                                          {accessPage, "page", "/settings", ""},
	"GET /settings/credentials":                              {accessPage, "page", "/settings/credentials", ""},
	"POST /settings/credentials":                             {accessForm, "form", "/settings/credentials", ""},
	"POST /settings/credentials/{credential}/{action}":       {accessForm, "form", "/settings/credentials/none/remove", ""},
	"GET /settings/tokens":                                   {accessPage, "page", "/settings/tokens", ""},
	"POST /settings/tokens":                                  {accessForm, "form", "/settings/tokens", ""},
	"POST /settings/tokens/{token}/revoke":                   {accessForm, "form", "/settings/tokens/none/revoke", ""},
	"POST /settings/appearance":                              {accessForm, "form", "/settings/appearance", ""},
	"GET /api/nodes":                                         {route.AccessRead, "", "/api/nodes", ""},
	"GET /api/nodes/{node}":                                  {route.AccessRead, "", "/api/nodes/local", ""},
	"GET /api/nodes/{node}/events":                           {route.AccessRead, "", "/api/nodes/local/events", ""},
	"POST /api/nodes/{node}/stop":                            {route.AccessAdmin, "", "/api/nodes/local/stop", ""},
	"DELETE /api/nodes/{node}":                               {route.AccessAdmin, "", "/api/nodes/local", ""},
	"GET /api/workspaces":                                    {route.AccessRead, "list", "/api/workspaces", ""},
	"POST /api/workspaces": {route.AccessWrite, "repo", "/api/workspaces",
		`{"repository":"team/app"}`},
	"GET /api/workspaces/{workspace}": {route.AccessRead, "repo", "/api/workspaces/run-subject", ""},
	"PATCH /api/workspaces/{workspace}": {route.AccessWrite, "repo", "/api/workspaces/run-subject",
		`{"private":false}`},
	"POST /api/workspaces/{workspace}/stop": {route.AccessWrite, "repo",
		"/api/workspaces/run-subject/stop", ""},
	"POST /api/workspaces/{workspace}/restart": {route.AccessWrite, "repo",
		"/api/workspaces/run-subject/restart", ""},
	"DELETE /api/workspaces/{workspace}": {route.AccessWrite, "repo",
		"/api/workspaces/run-subject-two", ""},
	"GET /api/workspaces/{workspace}/events": {route.AccessRead, "repo",
		"/api/workspaces/run-subject/events", ""},
	"GET /api/workspaces/{workspace}/boot-log": {route.AccessRead, "repo",
		"/api/workspaces/run-subject/boot-log", ""},
	"GET /api/workspaces/{workspace}/files": {route.AccessRead, "repo", "/api/workspaces/run-subject/files", ""},
	"POST /api/workspaces/{workspace}/files": {route.AccessWrite, "repo",
		"/api/workspaces/run-subject/files", ""}, // no form, so that no container starts
	"GET /api/workspaces/{workspace}/download": {route.AccessRead, "repo",
		"/api/workspaces/run-subject/download?path=a/b", ""},
	"POST /workspaces/{workspace}/files": {accessForm, "form", "/workspaces/run-subject/files", ""},
	"GET /workspaces/{workspace}/download": {accessPage, "page",
		"/workspaces/run-subject/download?path=a/b", ""},
	"POST /workspaces/{workspace}/download": {accessForm, "form",
		"/workspaces/run-subject/download", "path="}, // no path, so that no container starts
	"GET /connect":                          {route.AccessPublic, "", "/connect?ticket=x", ""},
	"POST /connect":                         {route.AccessPublic, "", "/connect", "ticket=x&token=x"},
	"GET /auth/oidc":                        {route.AccessPublic, "", "/auth/oidc", ""},
	"GET /auth/oidc/callback":               {route.AccessPublic, "", "/auth/oidc/callback", ""},
	"GET /auth/link":                        {route.AccessPublic, "", "/auth/link", ""},
	"GET /auth":                             {route.AccessPublic, "", "/auth", ""},
	"POST /auth/out":                        {route.AccessPage, "", "/auth/out", ""},
	"POST /auth/out/everywhere":             {route.AccessPage, "", "/auth/out/everywhere", ""},
	"GET /settings/sessions":                {route.AccessPage, "", "/settings/sessions", ""},
	"POST /settings/sessions/{session}/end": {route.AccessPage, "", "/settings/sessions/x/end", ""},
	"GET /admin/people":                     {route.AccessPage, "admin", "/admin/people", ""},
	"POST /admin/people/{person}":           {route.AccessPage, "admin", "/admin/people/x", ""},
	"GET /admin/audit":                      {route.AccessPage, "admin", "/admin/audit", ""},
	"POST /api/sign-in/link":                {route.AccessAdmin, "", "/api/sign-in/link", ""},
	"GET /api/people":                       {route.AccessAdmin, "", "/api/people", ""},
	"PATCH /api/people/{person}":            {route.AccessAdmin, "", "/api/people/nobody", `{"role":"king"}`},
	"DELETE /api/people/{person}":           {route.AccessAdmin, "", "/api/people/nobody", ""},
	"GET /api/sessions":                     {route.AccessAdmin, "", "/api/sessions", ""},
	"DELETE /api/sessions":                  {route.AccessAdmin, "", "/api/sessions", ""},
	"DELETE /api/sessions/{session}":        {route.AccessAdmin, "", "/api/sessions/nothing", ""},
	"POST /slack/interactions":              {route.AccessHook, "", "/slack/interactions", "payload={}"},
	"POST /slack/commands":                  {route.AccessHook, "", "/slack/commands", "command=/ramus"},
	" /": {route.AccessGit, "",
		"/team/app.git/info/refs?service=git-upload-pack", ""},

	"GET /api/runs/{run}/prompts": {route.AccessRead, "repo",
		"/api/runs/RUN/prompts", ""},
	"POST /api/runs/{run}/prompts/order": {route.AccessWrite, "repo",
		"/api/runs/RUN/prompts/order", `{"keys":[]}`},
	"POST /api/runs/{run}/prompts/{key}": {route.AccessWrite, "repo",
		"/api/runs/RUN/prompts/x", `{"text":"x"}`},
	"DELETE /api/runs/{run}/prompts/{key}": {route.AccessWrite, "repo",
		"/api/runs/RUN/prompts/x", ""},
	"POST /api/runs/{run}/stop-turn": {route.AccessWrite, "repo",
		"/api/runs/RUN/stop-turn", ""},
	"GET /api/workspaces/{caller}/agent-sessions": {route.AccessRead, "repo",
		"/api/workspaces/run:subject/agent-sessions", ""},
	"POST /api/workspaces/{caller}/agent-sessions": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/agent-sessions", `{"text":"go on"}`},
	"GET /api/workspaces/{caller}/agent-sessions/{session}": {route.AccessRead, "repo",
		"/api/workspaces/run:subject/agent-sessions/x", ""},
	"POST /api/workspaces/{caller}/agent-sessions/{session}/prompts": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/agent-sessions/x/prompts", `{"text":"go on"}`},
	"POST /api/workspaces/{caller}/agent-sessions/{session}/name": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/agent-sessions/x/name", `{"name":"x"}`},
	"DELETE /api/workspaces/{caller}/agent-sessions/{session}": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/agent-sessions/x", ""},
	"GET /api/workspaces/{caller}/transcript": {route.AccessRead, "repo",
		"/api/workspaces/run:subject/transcript", ""},
	"GET /api/workspaces/{caller}/review": {route.AccessRead, "repo", "/api/workspaces/run:subject/review", ""},
	"POST /api/workspaces/{caller}/review/drafts": {route.AccessWrite, "repo", "/api/workspaces/run:subject/review/drafts",
		`{"path":"x","line":1,"text":"x"}`},
	"POST /api/workspaces/{caller}/review/drafts/{draft}": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/review/drafts/x", `{"text":"x"}`},
	"DELETE /api/workspaces/{caller}/review/drafts/{draft}": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/review/drafts/x", ""},
	"POST /api/workspaces/{caller}/review/batches": {route.AccessWrite, "repo", "/api/workspaces/run:subject/review/batches",
		`{"comments":[{"path":"x","line":1,"text":"x"}]}`},
	"POST /api/workspaces/{caller}/review/threads/{thread}/answers": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/review/threads/x/answers", `{"text":"x"}`},
	"POST /api/workspaces/{caller}/review/threads/{thread}/resolve": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/review/threads/x/resolve", `{}`},
	"POST /api/workspaces/{caller}/review/threads/{thread}/take": {route.AccessWrite, "repo",
		"/api/workspaces/run:subject/review/threads/x/take", `{"comment":"x"}`},
	"GET /api/workspaces/{caller}/changes": {route.AccessRead, "repo",
		"/api/workspaces/run:subject/changes", ""},
	"GET /api/workspaces/{caller}/timeline": {route.AccessRead, "repo",
		"/api/workspaces/run:subject/timeline", ""},
	"GET /api/workspaces/{caller}/timeline/files": {route.AccessRead, "repo",
		"/api/workspaces/run:subject/timeline/files", ""},
	"GET /workspaces/{caller}/agent": {route.AccessWrite, "repo",
		"/workspaces/run:subject/agent", ""},
	"POST /workspaces/{workspace}/sessions/{session}/name": {accessForm, "form",
		"/workspaces/run-subject/sessions/x/name", ""},
	"POST /workspaces/{workspace}/talk/{action}": {accessForm, "form",
		"/workspaces/run-subject/talk/unsay", ""},
	"GET /workspaces/{workspace}/steps": {accessPage, "page",
		"/workspaces/run-subject/steps?turn=x", ""},
	"GET /workspaces/{workspace}/runs/{run}/prompts/{key}/{name}": {accessPage, "page",
		"/workspaces/run-subject/runs/x/prompts/x/x", ""},
}

// callerKinds are the kinds of callers with the classes of access that each may use.
var callerKinds = []struct {
	name   string
	grant  *gitd.Grant // if it is nil, token is used
	token  string
	local  bool
	may    []route.Access
	other  bool // the grant is for another repository
	status int  // the status of a refusal
	// A hidden caller sees the base and no branch of a caller. A bound caller may change neither of them.
	hidden, bound bool
}{
	{name: "nobody", status: 401},
	{name: "garbage", token: "garbage", status: 401},
	{name: "forged", token: "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwicmVwbyI6IioiLCJzY29wZXMiOlsiYWRtaW4iXX0.", status: 401},
	{name: "expired admin", grant: &gitd.Grant{Repo: "*", Scopes: []string{"admin"},
		Expires: time.Now().Add(-time.Hour)}, status: 401},
	{name: "no scopes", grant: &gitd.Grant{Repo: "*", Write: []string{"refs/heads/*"}}, status: 403},
	{name: "metrics", grant: &gitd.Grant{Repo: "*", Scopes: []string{"metrics"}},
		may: []route.Access{route.AccessMetrics}, status: 403},
	{name: "metrics of a repository", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"metrics"}}, status: 403},
	{name: "read other", grant: &gitd.Grant{Repo: "other", Scopes: []string{"read"}},
		may: []route.Access{route.AccessRead, route.AccessSigned}, other: true, status: 403},
	{name: "write other", grant: &gitd.Grant{Repo: "other", Scopes: []string{"write"}},
		may: []route.Access{route.AccessRead, route.AccessSigned, route.AccessWrite}, other: true, status: 403},
	{name: "admin other", grant: &gitd.Grant{Repo: "other", Scopes: []string{"admin"}},
		may: []route.Access{route.AccessRead, route.AccessSigned, route.AccessWrite}, other: true, status: 403},
	{name: "read", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"read"}},
		may: []route.Access{route.AccessRead, route.AccessSigned}, status: 403},
	{name: "write", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"write"}},
		may: []route.Access{route.AccessRead, route.AccessSigned, route.AccessWrite}, status: 403},
	{name: "admin", grant: &gitd.Grant{Repo: "*", Scopes: []string{"admin"}}, may: []route.Access{route.AccessMetrics,
		route.AccessRead, route.AccessSigned, route.AccessWrite, route.AccessAdmin}},
	{name: "read main", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"read"},
		Read: []string{"refs/heads/main"}}, may: []route.Access{route.AccessRead, route.AccessSigned}, status: 403,
		hidden: true},
	{name: "read main everywhere",
		grant: &gitd.Grant{Repo: "*", Scopes: []string{"read"}, Read: []string{"refs/heads/main"}},
		may:   []route.Access{route.AccessRead, route.AccessSigned}, status: 403, hidden: true},
	{name: "read with refs to push", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"read"},
		Write: []string{"refs/heads/*"}}, may: []route.Access{route.AccessRead, route.AccessSigned}, status: 403},
	{name: "metrics with refs",
		grant: &gitd.Grant{Repo: "*", Scopes: []string{"metrics"}, Read: []string{"refs/heads/*"},
			Write: []string{"refs/heads/*"}}, may: []route.Access{route.AccessMetrics}, status: 403},
	{name: "write below w", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"write"},
		Write: []string{"refs/heads/w/*"}},
		may: []route.Access{route.AccessRead, route.AccessSigned, route.AccessWrite}, status: 403, bound: true},
	{name: "write main", grant: &gitd.Grant{Repo: "team/app", Scopes: []string{"write"},
		Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/main"}},
		may: []route.Access{route.AccessRead, route.AccessSigned, route.AccessWrite}, status: 403, hidden: true},
	{name: "socket", local: true, may: []route.Access{route.AccessMetrics, route.AccessRead, route.AccessSigned,
		route.AccessWrite, route.AccessAdmin}},
}

// ofCaller matches the paths of objects on a caller's branch.
var ofCaller = regexp.MustCompile(`RUN|NAME|TASK|run:subject|run-subject`)

// TestAuthorisation tries every route as every kind of caller.
func TestAuthorisation(t *testing.T) {
	t.Parallel()
	store := &secret.Store{Box: &sealed.Box{Dir: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "seal.key")},
		Redact: new(redact.Secrets)}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	r := openExecutor(t, false, func(x *executor.Executor) { x.Options.Agents, x.SecretStore = coder, store },
		func(s *gateway.Server) {
			withEngineer(t)(s)
			withPeople(t)(s)
		})
	r.repo(t, "team/app")
	r.repo(t, "other")
	task, err := r.Engineer.Submit(t.Context(), engineer.Submission{Repo: "team/app", Description: "the subject"})
	if err != nil {
		t.Fatal(err)
	}
	run := r.failedRun(t)
	second, err := record.RunCaller("subject-two") // is removed
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.local.Submit(t.Context(),
		record.Request{Caller: second, Repo: "team/app", Command: &record.Command{Shell: "true"}}); err != nil {
		t.Fatal(err)
	}
	r.keepTournament(t)

	seen := map[string]bool{}
	for _, row := range r.Table() {
		key := row.Method + " " + row.Pattern
		seen[key] = true
		want, ok := expected[key]
		if !ok {
			t.Errorf("route %s has no row in the authorisation test", key)
			continue
		}
		if row.Access != want.access {
			t.Errorf("route %s is for %s, expected %s", key, row.Access, want.access)
		}
		if row.Access == route.AccessGit {
			continue // tested by TestGitAuthorisation
		}
		path := strings.ReplaceAll(want.path, "RUN", strings.ReplaceAll(run.Name(), "/", "%2F"))
		path = strings.ReplaceAll(strings.ReplaceAll(path, "NAME", run.Name()), "TASK", task.ID)
		for _, k := range callerKinds {
			token := k.token
			if k.grant != nil {
				g := *k.grant
				g.Subject = k.name
				token = r.token(t, g)
			}
			if (row.Access == route.AccessPage || row.Access == route.AccessSocket) && !k.local {
				continue // tested by TestSessions
			}
			status, body := r.ask(t, k.local, token, row.Method, path, want.body)
			if row.Access == route.AccessPage || row.Access == route.AccessSocket {
				if status != 409 {
					t.Errorf("%s, %s: status %d, want 409: only a browser is signed in: %s", key, k.name, status, body)
				}
				continue
			}
			if row.Access == route.AccessPreview {
				if status != 403 {
					t.Errorf("%s, %s: status %d, want 403: only a link leads there: %s", key, k.name, status, body)
				}
				continue
			}
			if row.Access == route.AccessHook {
				// A token does not count here, only the signature of the sender. The status is 404 if no sender is
				// configured.
				if status != 401 && status != 404 {
					t.Errorf("%s, %s: status %d without a signature: %s", key, k.name, status, body)
				}
				continue
			}
			in := want.access == route.AccessPublic
			for _, a := range k.may {
				in = in || a == want.access
			}
			switch {
			case !in:
				if status != k.status {
					t.Errorf("%s, %s: status %d, want %d: %s", key, k.name, status, k.status, body)
				}
			case want.of == "own":
				if status != 200 && status != 400 && status != 404 || strings.Contains(body, "team/app") {
					t.Errorf("%s, %s: status %d, want none of its own: %s", key, k.name, status, body)
				}
			case k.hidden && want.of != "" && ofCaller.MatchString(want.path+want.body):
				if status != 404 || strings.Contains(body, "team/app") && !strings.Contains(path, "team") {
					t.Errorf("%s, %s: status %d, want 404 without a word of what is hidden: %s", key, k.name, status, body)
				}
			case k.hidden && want.of == "list" && !strings.HasSuffix(want.path, "/repos"):
				if status != 200 || strings.Contains(body, "subject") {
					t.Errorf("%s, %s: status %d: %s", key, k.name, status, body)
				}
			case k.hidden && want.access == route.AccessWrite && !strings.Contains(path, "refresh"),
				k.bound && want.access == route.AccessWrite:
				if status != 403 {
					t.Errorf("%s, %s: status %d, want 403: it changes a branch that the token may not: %s", key, k.name,
						status, body)
				}
			case k.other && want.of == "repo":
				if status != 404 || strings.Contains(body, "team/app") && !strings.Contains(path+want.body, "team") {
					t.Errorf("%s, %s: status %d, want 404 without a word of the other repository: %s", key, k.name,
						status, body)
				}
			case k.other && want.of == "list":
				if status != 200 || strings.Contains(body, "team/app") {
					t.Errorf("%s, %s: status %d: %s", key, k.name, status, body)
				}
			case key == "GET /auth/link":
				if status != 403 && !k.local { // a browser does not use the socket
					t.Errorf("%s, %s: status %d, want 403: it opens by its code alone: %s", key, k.name, status, body)
				}
			case (key == "POST /api/backup" || key == "POST /api/sign-in/link") && !k.local:
				if status != 403 {
					t.Errorf("%s, %s: status %d, want 403: only the machine of the server does that: %s", key, k.name,
						status, body)
				}
			case status == 401 || status == 403 || status == 404 && !strings.Contains(path, "/processes/") &&
				!strings.Contains(path, "/terminals/") && !strings.Contains(path, "/output/") &&
				!strings.Contains(path, "/secrets/") && !strings.Contains(path, "/agent-sessions/x") &&
				!strings.Contains(body, "was not replayed") &&
				!strings.Contains(path, "/review/") && !strings.HasPrefix(path, "/shared/") && !strings.HasPrefix(path, "/api/agent") && !strings.HasPrefix(path, "/api/people/") && !strings.HasPrefix(path, "/api/sessions/"):
				t.Errorf("%s, %s: status %d, want to be let in: %s", key, k.name, status, body)
			case want.of == "list" && !strings.Contains(body, "team/app"):
				t.Errorf("%s, %s: the list is empty: %s", key, k.name, body)
			}
		}
	}
	r.tryLinks(t, run)
	for key := range expected {
		if !seen[key] {
			t.Errorf("the authorisation test has a row for %s, which is no route", key)
		}
	}
}

// tryLinks tries on every route that a signed link opens only the path that it was signed for, and only until it
// expires.
func (r *rooms) tryLinks(t *testing.T, run record.Run) {
	t.Helper()
	now := time.Now()
	expired := *r.Links
	expired.Now = func() time.Time { return now.Add(-8 * 24 * time.Hour) }
	forged := *r.Links
	forged.Key = []byte(strings.Repeat("x", 32))
	other := r.token(t, gitd.Grant{Subject: "other", Repo: "other", Scopes: []string{"read"}})
	own := r.token(t, gitd.Grant{Subject: "own", Repo: "team/app", Scopes: []string{"read"}})
	for _, way := range r.Table() {
		row := expected[way.Method+" "+way.Pattern]
		if way.Access == route.AccessGit || way.Access == route.AccessPublic || way.Access == route.AccessHook ||
			way.Access == route.AccessPreview ||
			way.Access == route.AccessPage || way.Access == route.AccessSocket {
			continue
		}
		name := way.Method + " " + way.Pattern
		path, query, _ := strings.Cut(strings.NewReplacer("RUN", run.Name(), "NAME", run.Name(), "TASK",
			"task").Replace(row.path), "?")
		with := func(link string) string {
			if query != "" {
				link += "&" + query
			}
			return link
		}
		for _, k := range []struct {
			who, path, token string
			status           int
		}{
			{"a link", with(r.Links.Sign(path)), "", 200},
			{"a link, and a token for another repository", with(r.Links.Sign(path)), other, 200},
			{"an expired link", with(expired.Sign(path)), "", 403},
			{"an expired link, and a token", with(expired.Sign(path)), own, 200},
			{"a link by another key", with(forged.Sign(path)), "", 403},
			{"a link to another path", strings.Replace(with(r.Links.Sign(path+"x")), path+"x", path, 1), "", 403},
		} {
			if k.status == 200 && strings.HasPrefix(path, "/preview/") {
				k.status = 503 // the link is accepted, but there is no container to show
			}
			status, body := r.ask(t, false, k.token, way.Method, k.path, row.body)
			switch {
			case way.Access == route.AccessSigned && status != k.status:
				t.Errorf("%s, %s: status %d, want %d: %s", name, k.who, status, k.status, body)
			case way.Access != route.AccessSigned && k.token == "" && status != 401 && status != 404:
				t.Errorf("%s, %s: status %d, want 401: only evidence is opened by links: %s", name, k.who, status, body)
			}
		}
	}
}

// ask sends one request and returns the status and the beginning of the answer.
func (r *rooms) ask(t *testing.T, local bool, token, method, path, body string) (int, string) {
	t.Helper()
	// An endless stream is closed after its status is known.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server, c := r.web.URL, r.web.Client()
	if local {
		server = "http://socket"
		c = &http.Client{Transport: r.socketTransport()}
		defer c.CloseIdleConnections()
	}
	req, err := http.NewRequestWithContext(ctx, method, server+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if strings.HasPrefix(path, "/api/watch") && resp.StatusCode == 200 {
		return resp.StatusCode, ""
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if resp.StatusCode >= 400 && !strings.HasPrefix(string(b), "<!doctype html>") {
		var p route.Problem
		if err := json.Unmarshal(b, &p); err != nil || p.Status != resp.StatusCode || p.Kind == "" {
			t.Errorf("%s %s: status %d is no problem: %s", method, path, resp.StatusCode, b)
		}
		if resp.StatusCode == 401 && resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s: 401 without WWW-Authenticate", method, path)
		}
	}
	return resp.StatusCode, string(b)
}

func (r *rooms) socketTransport() *http.Transport {
	return &http.Transport{DialContext: dialUnix(r.socket.Listener.Addr().String())}
}

// keepTournament keeps a tournament whose entry has not begun.
func (r *rooms) keepTournament(t *testing.T) {
	t.Helper()
	p := tournament.Plan{Name: "run-subject-cup", Repo: "team/app", Base: "main", Task: "x"}
	repo, err := r.Git.Repo(p.Repo)
	if err == nil {
		p.At, err = repo.Resolve(t.Context(), "main")
	}
	if err == nil {
		err = p.SetEntries([]string{"coder"}, 2)
	}
	if err == nil {
		err = (&tournament.Book{Now: time.Now, Bot: gitd.Person{Name: "ramus", Email: "ramus@example.com"}}).Make(t.Context(), repo, p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forStrangers are the routes that strangers may open for a repository which everybody may read. It is repeated here independently of the
// table of routes.
var forStrangers = []string{"GET /repos/{repo}", "GET /repos/{repo}/files", "GET /repos/{repo}/log", "GET /repos/{repo}/branches"}

// TestStrangers tries every route without a sign-in after one of two repositories was opened to everybody.
func TestStrangers(t *testing.T) {
	t.Parallel()
	r := open(t, false, withPeople(t))
	r.repo(t, "team/app")
	r.repo(t, "other")
	branch := r.branch(t, "team/app", "main")
	subject, err := record.RunCaller("subject")
	if err != nil {
		t.Fatal(err)
	}
	run, err := r.local.Submit(t.Context(), record.Request{Repo: "team/app", Caller: subject,
		Asker: gitd.Person{Name: "Ada Secretive", Email: "ada@example.org"}, Command: &record.Command{Shell: "echo hidden-command"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Executor.Settled(t.Context(), run.Caller, run.ID); err != nil {
		t.Fatal(err)
	}
	repo, err := r.Git.Repo("team/app")
	if err != nil {
		t.Fatal(err)
	}
	get := func(method, path string) (int, http.Header, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, r.web.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/html")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(b)
	}
	for _, public := range []bool{false, true, false} {
		if out, err := exec.Command("git", "-C", repo.Dir(), "config", "ramus.anonymous", strconv.FormatBool(public)).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		for _, row := range r.Table() {
			key := row.Method + " " + row.Pattern
			if row.Access != route.AccessPage || row.Method != "GET" {
				if row.Strangers {
					t.Errorf("%s lets strangers in, and is no page", key)
				}
				continue
			}
			want := 303
			if public && slices.Contains(forStrangers, key) {
				want = 200
			}
			status, header, body := get("GET", expected[key].path)
			if status != want {
				t.Errorf("%s, public %t: status %d to %q, want %d", key, public, status, header.Get("Location"), want)
			}
			if status != 200 {
				continue
			}
			if header.Get("X-Robots-Tag") != "noindex, nofollow" {
				t.Errorf("%s: search engines may list it: %v", key, header)
			}
			for _, hidden := range []string{"hidden-command", "Secretive", "/workspaces", "/radar", "/bases", "<form", "data-live-at", "Environment"} {
				if strings.Contains(body, hidden) {
					t.Errorf("%s shows %q to strangers: %s", key, hidden, body)
				}
			}
		}
		for path, want := range map[string]int{"/repos/team%2Fapp/files?path=README&why=1": 200, "/repos/team%2Fapp/log?at=" + string(branch): 200,
			"/repos/team%2Fapp/files?at=refs/ramus/runs/run-subject/" + run.ID: 404, "/repos/team%2Fapp/files?at=ramus%2Frun-none": 404} {
			if !public {
				want = 303
			}
			if status, _, body := get("GET", path); status != want {
				t.Errorf("%s, public %t: status %d, want %d: %s", path, public, status, want, body)
			}
		}
		for _, other := range []string{"/repos/other", "/repos/none", "/repos/ramus-people"} {
			if status, _, _ := get("GET", other); status != 303 {
				t.Errorf("%s: status %d", other, status)
			}
		}
		out, err := exec.Command("git", "-c", "credential.helper=", "-c", "core.askPass=true", "ls-remote", r.web.URL+"/team/app.git").CombinedOutput()
		if (err == nil) != public || strings.Contains(string(out), "refs/ramus/") || public && !strings.Contains(string(out), string(branch)) {
			t.Errorf("public %t: ls-remote says %v, %s", public, err, out)
		}
	}
}
