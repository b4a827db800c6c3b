#!/usr/bin/env bash
# Shows a team at work: a real Gitea on loopback is the upstream of an imported repository, and a real PostgreSQL runs next to
# the containers. Slack and the model have stand-ins. A mention in plain words becomes an agent's work, tests and a pull request
# in the asker's own name. A reviewer comments, ramus answers with a commit, and the merge at Gitea is the base of the next work.
# Then somebody pushes to Gitea in the middle of each of 20 merges, and no commit is lost. The exit status is 0 only if all of
# this happened. All files are in a temporary folder. KEEP=1 keeps it.
#
# RAMUS is the path of a built binary, RAMUS_GITEA that of Gitea. Without the latter, scripts/gitea.sh builds Gitea first.
# ROUNDS is the number of merges (20).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
for program in curl jq; do
    command -v "$program" >/dev/null || { echo "demo-team: $program is missing (apt-get install $program)" >&2; exit 1; }
done
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || { echo "demo-team: PostgreSQL is missing (apt-get install postgresql)" >&2; exit 1; }
[ -n "${RAMUS_GITEA:-}" ] || scripts/gitea.sh
stage team
started=$(date +%s)
rounds=${ROUNDS:-20}

shown() { sed 's/^/           /'; }

# --- The stage: the programs, a repository, the configuration ---

mkdir -p "$work/bin" "$work/site" "$work/data" "$work/middle"
go build -o "$work/bin/" ./internal/giteaserver/gitea-site ./internal/standin/acp-standin ./internal/standin/model-standin ./internal/standin/slack-standin
web=127.0.0.1:$(port 0) talk=127.0.0.1:$(port 1) llm=127.0.0.1:$(port 2)

# A program in SQL, whose tests ask the database.
mkdir -p "$work/orders/.ramus"
cat >"$work/orders/.ramus/config.yaml" <<'YAML'
services:
  db:
    command: |
      PATH=$(ls -d /usr/lib/postgresql/*/bin):$PATH
      initdb --no-sync -U postgres -A trust -D /cache/db >/dev/null && exec postgres -D /cache/db -k /tmp -c fsync=off
    ready: psql -h 127.0.0.1 -U postgres -c 'select 1'
    port: 5432
YAML
cat >"$work/orders/revenue.sql" <<'SQL'
SELECT coalesce(sum(amount), 0)
FROM orders;
SQL
cat >"$work/orders/orders_test.go" <<'GO'
package orders

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// revenue returns the revenue of some orders, as PostgreSQL computes it.
func revenue(t *testing.T, rows string) string {
	t.Helper()
	report, err := os.ReadFile("revenue.sql")
	if err != nil {
		t.Fatal(err)
	}
	psql := exec.Command("psql", "-h", "db", "-U", "postgres", "-AtqX", "-v", "ON_ERROR_STOP=1")
	psql.Stdin = strings.NewReader("CREATE TEMPORARY TABLE orders (amount int, status text); INSERT INTO orders VALUES " + rows + ";" + string(report))
	out, err := psql.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPaid(t *testing.T) {
	if got := revenue(t, "(40, 'paid'), (2, 'paid')"); got != "42" {
		t.Errorf("the revenue is %s, want 42", got)
	}
}
GO
printf 'module orders\n\ngo 1.26\n' >"$work/orders/go.mod"
git init -q -b main "$work/orders"
git -C "$work/orders" add -A
git -C "$work/orders" -c user.name=Reviewer -c user.email=reviewer@example.org commit -qm "Report the revenue"

# The texts of the model, which is the only part of an agent that is not available here.
cat >"$work/scenes.yaml" <<'YAML'
- prompt: Refunds are no revenue
  answers:
    - text: Refunded orders are left out too, with a test.
      calls:
        - {name: edit, input: {path: revenue.sql, old: "status <> 'cancelled'", new: "status NOT IN ('cancelled', 'refunded')"}}
        - name: edit
          input:
            path: refunded_test.go
            text: |
              package orders

              import "testing"

              func TestRefunded(t *testing.T) {
              	if got := revenue(t, "(40, 'paid'), (2, 'refunded')"); got != "40" {
              		t.Errorf("the revenue is %s, want 40", got)
              	}
              }
    - calls:
        - {name: bash, input: {command: go test ./...}}
    - text: Refunded orders are no revenue any more.
- prompt: counts cancelled orders
  answers:
    - text: First a test that shows it.
      calls:
        - name: edit
          input:
            path: cancelled_test.go
            text: |
              package orders

              import "testing"

              func TestCancelled(t *testing.T) {
              	if got := revenue(t, "(40, 'paid'), (2, 'cancelled')"); got != "40" {
              		t.Errorf("the revenue is %s, want 40", got)
              	}
              }
        - {name: bash, input: {command: "go test ./... || true"}}
    - text: The report has no condition.
      calls:
        - {name: edit, input: {path: revenue.sql, old: "FROM orders;", new: "FROM orders\nWHERE status <> 'cancelled';"}}
    - calls:
        - {name: bash, input: {command: go test ./...}}
    - text: Cancelled orders are left out, and the tests pass.
YAML

say "a real Gitea with the repository acme/orders, and with the people developer and reviewer"
"$work/bin/gitea-site" -dir "$work/site" -import "$work/orders" -repo acme/orders -hook "http://$web/webhooks/gitea" -people developer,reviewer &
site=$!
standins="$standins $site"
until [ -e "$work/site/url" ]; do
    kill -0 "$site" 2>/dev/null || missed "a Gitea"
    sleep 0.1
done
gitea=$(cat "$work/site/url")

export SLACK_BOT_TOKEN=xoxb-demo-token SLACK_SIGNING_SECRET=demo-signing-secret MODEL_KEY=sk-demo-0123456789
export RAMUS_DATA=$work/data
goroot=$(go env GOROOT)
cat >"$RAMUS_DATA/ramus.yaml" <<YAML
$(agent_settings "$talk")
gitea:
  url: $gitea
  token_file: $work/site/ramus.token
  webhook_secret_file: $work/site/hook.secret
repos:
  orders:
    upstream: $gitea/acme/orders.git
    merge: push
gate:
  enabled: true
  thread_starters: [U01]
engineer:
  delete_branch: true
YAML

# api makes a request to Gitea as a person: api NAME METHOD PATH [JSON].
api() {
    curl -sS --fail-with-body -X "$2" -H @<(printf 'Authorization: token %s' "$(cat "$work/site/$1.token")") -H 'Content-Type: application/json' \
        ${4:+--data-binary "$4"} "$gitea/api/v1/repos/acme/orders$3"
}
there() { api ramus GET /branches/main | jq -r .commit.id; }
here() { git -C "$RAMUS_DATA/repos/orders.git" rev-parse "${1:-main}"; }
follows() { [ "$(here)" = "$(there)" ]; }

"$ramus" repo refresh orders 2>"$work/import.log" | sed -n 1p || missed "an import: $(cat "$work/import.log")"
follows || missed "the base of the import"

mkfifo "$work/lines"
trap 'exec 7>&-; strike' EXIT # the stand-in of Slack ends with its input
"$work/bin/slack-standin" -serve -listen "$talk" -ramus "http://$web" -users U01=developer,U02=reviewer \
    <"$work/lines" > >(tee "$work/slack.txt" |
        sed -u -E '/^mark /d; /:[a-z_]+: by ramus, on what/d; s/<http[^|>]*\|([^>]*)>/\1/g; s/^/  slack  | /') &
standins="$standins $!"
exec 7>"$work/lines"
"$work/bin/model-standin" -listen "$llm" -scenes "$work/scenes.yaml" >"$work/model.log" 7>&- &
standins="$standins $!"

# slack performs one line of the script of Slack (internal/standin/slack-standin). heard waits until ramus has answered it.
slack() { printf '%s\n' "$1" >&7; }
marks=0
heard() {
    marks=$((marks + 1))
    slack "wait $1 $2"
    slack "note mark $marks"
    until_ok $(($1 + 5)) grep -qx "mark $marks" "$work/slack.txt"
}

serve 7>&-
slack "verify 60"
slack "email developer developer@example.org"

# --- From a mention to a merged pull request ---

say "developer stores a token of their own, on a page that only they get the link of"
slack "command developer #builds connect"
until_ok 30 grep -q "/connect?ticket=" "$work/slack.txt"
link=$(grep -o "http://$web/connect?ticket=[A-Z0-9]*" "$work/slack.txt" | tail -n 1)
curl -sS --fail-with-body "$link" | grep 'type="password"' >/dev/null || missed "a page that takes the token"
printf 'ticket=%s&token=%s' "${link##*=}" "$(cat "$work/site/developer.token")" |
    curl -sS --fail-with-body -H 'Accept: text/html' --data-binary @- "http://$web/connect" >"$work/connected.html" || missed "a token that is stored: $(cat "$work/connected.html")"
grep -q 'opened by <b>developer</b>' "$work/connected.html" || missed "a token of developer"
echo "the page: $(grep 'opened by' "$work/connected.html" | sed 's/<[^>]*>//g')" | shown
"$ramus" secret list | shown

say "a mention in plain words; an agent works in a sandbox, next to a real PostgreSQL"
slack "say developer #builds @ramus the revenue report counts cancelled orders, please fix it"
heard 300 '(?s)Done.*passed' # Go compiles its library into an empty cache first
slack "reply developer @ramus exec psql -h db -U postgres -Atc 'select version()'"
heard 120 'PostgreSQL [0-9]+'
caller=$("$ramus" ps | awk '$1 ~ /^conv:/ && !n++ { print $1 }')
branch=ramus/${caller/:/-}
"$ramus" log "$caller" | sed -n 1,8p | shown

say "developer presses the button; the pull request at Gitea is in developer's name"
slack "press developer pull"
heard 120 'Opened pull request #1'
pull() { api reviewer GET /pulls/1 | jq -r "$1"; }
[ "$(pull .user.login)" = developer ] || missed "a pull request by developer: it is by $(pull .user.login)"
author=$(git -C "$RAMUS_DATA/repos/orders.git" log -1 --format='%an <%ae>' "$branch")
[ "${author##* }" = "<developer@example.org>" ] || missed "commits by developer: $author"
pull '"#\(.number) by \(.user.login), \(.state): \(.title)  \(.html_url)"' | shown
echo "author of its commits: $author" | shown

say "reviewer comments on a line; ramus answers with a further commit"
before=$(pull .head.sha)
theirs=$(pull .head.ref)
line=$(here "$branch:revenue.sql" | xargs git -C "$RAMUS_DATA/repos/orders.git" cat-file -p | grep -n cancelled | cut -d : -f 1)
api reviewer POST /pulls/1/reviews "{\"event\":\"COMMENT\",\"comments\":[{\"path\":\"revenue.sql\",\"new_position\":$line,\"body\":\"Refunds are no revenue either. Please leave them out.\"}]}" >/dev/null
moved() { [ "$(pull .head.sha)" != "$before" ]; }
until_ok 240 moved
answered() { api reviewer GET /pulls/1/reviews | jq -e '[.[] | select(.user.login == "ramus")] | length > 0'; }
until_ok 60 answered
review=$(api reviewer GET /pulls/1/reviews | jq '[.[] | select(.user.login == "ramus")][-1].id')
api reviewer GET "/pulls/1/reviews/$review/comments" | jq -r '.[0] | "ramus on \(.path): \(.body)"' | grep -v '^<!--' | sed -n 1,8p | shown
git -C "$RAMUS_DATA/repos/orders.git" log --format='%h %an: %s' "main..$branch" | shown
git -C "$RAMUS_DATA/repos/orders.git" diff main "$branch" -- revenue.sql | tail -n +5 | shown

say "reviewer approves and merges at Gitea; the base follows, and the branches go"
api reviewer POST /pulls/1/reviews '{"event":"APPROVED","body":"Thank you."}' >/dev/null
until_ok 60 api reviewer POST /pulls/1/merge '{"Do":"merge"}' # Gitea looks for conflicts in the background
heard 60 'Merged'
merged=$(pull .merge_commit_sha)
until_ok 30 follows
[ "$(here)" = "$merged" ] || missed "the base at the merge $merged: it is at $(here)"
gone() { ! api reviewer GET "/branches/$1" && ! here "refs/heads/$branch"; }
until_ok 30 gone "$theirs"
echo "main here and at Gitea: $(git -C "$RAMUS_DATA/repos/orders.git" log -1 --format='%h %an: %s')" | shown
echo "the branch $branch is gone, here and there" | shown

say "the next work begins from the merge"
slack "say developer #builds @ramus exec git log -1 --format='begun from %H' && cat revenue.sql"
heard 120 "(?s)begun from $merged.*refunded"

# --- A push in the middle of each merge ---

# Gitea runs this hook when it has received a push of ramus and has not yet moved the branch. Somebody else pushes then.
cat >"$work/middle/push" <<SH
#!/bin/bash
set -eu
cd "$work/middle/clone"
git fetch -q origin
git reset -q --hard origin/main
n=\$(wc -l <"$work/middle/pushed")
echo "theirs \$n" >theirs-\$n.txt
git add -A
git commit -qm "Theirs, \$n"
git push -q origin HEAD:main
git rev-parse HEAD >>"$work/middle/pushed"
SH
hook=$work/site/gitea/repos/acme/orders.git/hooks/pre-receive.d/in-the-middle
cat >"$hook" <<SH
#!/bin/bash
[ "\${GITEA_PUSHER_NAME:-}" = ramus ] || exit 0
left=\$(cat "$work/middle/left")
while read -r _ _ ref; do
    [ "\$ref" = refs/heads/main ] && [ "\$left" -gt 0 ] || continue
    echo \$((left - 1)) >"$work/middle/left"
    env -i PATH="\$PATH" HOME="$work/middle" GIT_CONFIG_NOSYSTEM=1 "$work/middle/push" >>"$work/middle/log" 2>&1
done
exit 0
SH
chmod 755 "$work/middle/push" "$hook"
: >"$work/middle/pushed"
: >"$work/middle/merged"
echo 0 >"$work/middle/left"
printf '[http]\n\textraHeader = Authorization: token %s\n[user]\n\tname = Reviewer\n\temail = reviewer@example.org\n' "$(cat "$work/site/reviewer.token")" >"$work/middle/.gitconfig"
HOME=$work/middle GIT_CONFIG_NOSYSTEM=1 git clone -q "$gitea/acme/orders.git" "$work/middle/clone"

say "somebody pushes to Gitea in the middle of each of $rounds merges"
for round in $(seq "$rounds"); do
    "$ramus" exec "ours-$round" --repo orders -- "echo 'ours $round' >ours-$round.txt" >/dev/null
    had=$(wc -l <"$work/middle/pushed")
    echo $((1 + round % 2)) >"$work/middle/left" # once or twice
    "$ramus" merge "ours-$round" --delete --json >"$work/middle/result" || missed "merge $round: $(cat "$work/middle/result" "$work/middle/log")"
    commit=$(jq -r .commit "$work/middle/result")
    echo "$commit" >>"$work/middle/merged"
    theirs=$(tail -n +$((had + 1)) "$work/middle/pushed" | cut -c 1-10 | xargs)
    [ "$(cat "$work/middle/left")" = 0 ] && [ -n "$theirs" ] || missed "a push in the middle of merge $round: $(cat "$work/middle/log")"
    [ "$(jq .tries "$work/middle/result")" -gt 1 ] || missed "a merge that was tried again: $(cat "$work/middle/result")"
    printf '           %2d  reviewer pushed %-21s ramus merged %.10s at try %s\n' "$round" "$theirs" "$commit" "$(jq .tries "$work/middle/result")"
done

say "nothing is lost, and nothing has diverged"
until_ok 30 follows
# A clone of Gitea, with the branch of ramus next to it.
look() { HOME=$work/middle GIT_CONFIG_NOSYSTEM=1 git -C "$work/middle/clone" "$@"; }
look fetch -q origin main:refs/demo/gitea
look fetch -q "$RAMUS_DATA/repos/orders.git" main:refs/demo/ramus
count=0
while read -r commit; do
    for main in refs/demo/gitea refs/demo/ramus; do
        look merge-base --is-ancestor "$commit" "$main" || missed "the commit $commit in $main"
    done
    count=$((count + 1))
done < <(cat "$work/middle/pushed" "$work/middle/merged"; echo "$merged")
files=$(git -C "$RAMUS_DATA/repos/orders.git" ls-tree --name-only main | grep -cE '^(ours|theirs)-[0-9]+.txt$')
[ "$files" = $((rounds + $(wc -l <"$work/middle/pushed"))) ] || missed "a file for each commit: there are $files"
echo "$(wc -l <"$work/middle/pushed") pushed and $rounds merged commits: all $count are in main of Gitea and of ramus, which are at $(here | cut -c 1-10)" | shown
for repo in "$RAMUS_DATA/repos/orders.git" "$work/site/gitea/repos/acme/orders.git"; do
    git -C "$repo" fsck --strict --no-dangling 2>&1 | shown
done
echo "git fsck finds no fault in the repositories of ramus and of Gitea" | shown
if grep -rlsF -e "$(cat "$work/site/developer.token")" -e "$(cat "$work/site/ramus.token")" -e xoxb-demo -e sk-demo "$RAMUS_DATA" --exclude=ramus.yaml; then
    missed "a secret is in one of these files"
fi

# The stand-ins print their complaints when they end.
exec 7>&-
for one in $standins; do
    kill "$one"
    wait "$one" || missed "a program of the stage complains; see above"
done
standins=
say "done in $(($(date +%s) - started)) s: a pull request in the asker's name is merged, and no commit is lost in $rounds pushes in the middle of merges"
