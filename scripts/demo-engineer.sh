#!/usr/bin/env bash
# Shows ramus as an engineer, with stand-ins of GitHub, Slack and a model on loopback, and an agent in a sandbox that speaks
# the Agent Client Protocol. A program submits a task by MCP. The task becomes a pull request, the agent addresses a comment
# and a review, and the pull request is merged. Only the change and the evidence remain. The exit status is 0 only if all of
# this happened. All files are in a temporary folder. KEEP=1 keeps it.
#
# RAMUS is the path of a built binary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
stage engineer

started=$(date +%s)
mkdir -p "$work/bin" "$work/data"
go build -o "$work/bin/" ./internal/standin/acp-standin ./internal/standin/github-standin ./internal/standin/model-standin ./internal/standin/slack-standin
web=127.0.0.1:$(port 0) hub=127.0.0.1:$(port 1) chat=127.0.0.1:$(port 2) llm=127.0.0.1:$(port 3)

export GITHUB_WEBHOOK_SECRET=demo-webhook-secret GITHUB_TOKEN=ghp_demo
export SLACK_BOT_TOKEN=xoxb-demo-token SLACK_SIGNING_SECRET=demo-signing-secret MODEL_KEY=sk-demo-0123456789
export RAMUS_DATA=$work/data
goroot=$(go env GOROOT)
cat >"$RAMUS_DATA/ramus.yaml" <<YAML
$(agent_settings "$chat")
github:
  url: http://$hub
  app_id: 12
  installation_id: 34
  key_file: $work/app.pem
  webhook_secret_env: GITHUB_WEBHOOK_SECRET
repos:
  sample:
    upstream: http://$hub/acme/sample.git
engineer:
  slack_channel: C01
  labels: [ramus]
  delete_branch: true
YAML

# The texts of the model, which is the only part of an agent that is not available here.
cat >"$work/scenes.yaml" <<'YAML'
- prompt: an ounce is exactly
  answers:
    - text: The exact value takes the place of the rounded one.
      calls:
        - {name: edit, input: {path: units/units.go, old: "28.3495,", new: "28.349523125,"}}
    - text: Now the tests.
      calls:
        - {name: bash, input: {command: go test ./units/}}
    - text: The ounce is exact now.
- prompt: Pounds are missing
  answers:
    - text: A pound is sixteen ounces.
      calls:
        - name: edit
          input: {path: units/units.go, old: "\t\"oz\":", new: "\t\"lb\": {453.59237, Gram},\n\t\"oz\":"}
        - name: edit
          input:
            path: units/imperial_test.go
            text: |
              package units

              import "testing"

              func TestImperial(t *testing.T) {
              	for in, want := range map[string]string{"1 oz": "28.35 g", "16 oz": "453.592 g", "1 lb": "453.592 g"} {
              		got, err := Parse(in)
              		if err != nil || got.String() != want {
              			t.Errorf("%s: got %v, %v; want %s", in, got, err, want)
              		}
              	}
              }
    - calls:
        - {name: bash, input: {command: gofmt -l units; go test ./units/}}
    - text: Pounds are read, and tested.
- prompt: TestImperial fails
  answers:
    - text: Let me see which units there are.
      calls:
        - {name: read, input: {path: units/units.go}}
        - {name: bash, input: {command: go test ./units/}}
    - text: Ounces are missing in the scale.
      calls:
        - name: edit
          input: {path: units/units.go, old: "\t\"ml\":", new: "\t\"oz\": {28.3495, Gram},\n\t\"ml\":"}
    - calls:
        - {name: bash, input: {command: go test ./units/}}
    - text: Ounces are read as grams, and the test passes.
YAML

# The sample repository with a test that fails.
git init -q -b main "$work/sample"
cp -r examples/sample/. "$work/sample"
cat >"$work/sample/units/imperial_test.go" <<'GO'
package units

import "testing"

func TestImperial(t *testing.T) {
	got, err := Parse("1 oz")
	if err != nil || got.String() != "28.35 g" {
		t.Errorf("got %v, %v; want 28.35 g", got, err)
	}
}
GO
git -C "$work/sample" add -A
git -C "$work/sample" -c user.name=demo -c user.email=demo@localhost commit -qm "The sample, with a test that fails"

"$work/bin/github-standin" -serve -listen "$hub" -import "sample=$work/sample" -hook "http://$web/webhooks/github" -key "$work/app.pem" \
    </dev/null > >(sed -u 's/^/  github | /') &
standins="$standins $!"
"$work/bin/slack-standin" -serve -listen "$chat" -ramus "http://$web" -users U01=developer </dev/null > >(sed -u 's/^/  slack  | /') &
standins="$standins $!"
"$work/bin/model-standin" -listen "$llm" -scenes "$work/scenes.yaml" >"$work/model.log" &
standins="$standins $!"
until_ok 30 curl -sf "http://$hub/_standin/pulls"

# people performs one line of the script of GitHub (internal/standin/github-standin).
people() {
    local answer
    answer=$(curl -sS --fail-with-body --data-binary "$1" "http://$hub/_standin" 2>&1) || missed "$1: $answer"
}

"$ramus" repo refresh sample
serve
people "ping 30"
token=$("$ramus" token create --subject assistant --repo sample --scope write --for 1h)

# mcp sends one message of the Model Context Protocol and prints the JSON of the response.
session=()
mcp() {
    curl -sS --fail-with-body -D "$work/headers" "http://$web/mcp" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
        -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2025-06-18' "${session[@]}" -d "$1" | sed 's/^data: //; /^event: /d; /^id: /d; /^$/d'
}
call() { mcp "{\"jsonrpc\":\"2.0\",\"id\":$RANDOM,\"method\":\"tools/call\",\"params\":{\"name\":\"$1\",\"arguments\":$2}}"; }

say "a program hands over a task by MCP"
mcp '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"demo","version":"1"}}}' >"$work/hello.json"
id=$(sed -n 's/^mcp-session-id: *\([^[:space:]]*\).*/\1/Ip' "$work/headers")
[ -n "$id" ] || missed "a session: $(cat "$work/hello.json")"
session=(-H "Mcp-Session-Id: $id")
mcp '{"jsonrpc":"2.0","method":"notifications/initialized"}' >/dev/null
answer=$(call submit_task '{"description":"Read ounces: TestImperial fails","context":"units.Parse knows no oz. An ounce is 28.35 g. See units/units.go."}')
task=$(grep -o '"task_id": *"[0-9a-f]*"' <<<"$answer" | head -n 1 | grep -o '[0-9a-f]\{16\}') || missed "a task id: $answer"
echo "submit_task → $task"

say "an agent works on it in a sandbox; a pull request appears"
people "wait 300 opened #1" # Go compiles its library into an empty cache first
people "wait 60 labelled #1"

say "a comment on a line"
people 'line reviewer units/units.go /28.3495/ Please do not round: an ounce is exactly 28.349523125 g.'
people "wait 120 answered on #1"
people "wait 60 asked reviewer"

say "a review that asks for more"
people 'review reviewer changes_requested Pounds are missing, too. Please test them.'
people "wait 120 commented on #1"
people "wait 60 asked reviewer"

say "approved, and merged"
people "review reviewer approved Thank you."
people "merge reviewer squash"
people "wait 60 deleted the branch"

status() { call get_task_status "{\"task_id\":\"$task\"}"; }
is_complete() { status | grep '"status": *"complete"' >/dev/null; }
until_ok 30 is_complete
echo "get_task_status → $(status | grep -o '{"[a-z_]*":[^{}]*"status":"complete"[^{}]*}' | head -n 1)"

say "GitHub delivers all of it once more, the last first; nothing changes"
pulls() { curl -sf "http://$hub/_standin/pulls"; }
before=$(pulls)
people redeliver
sleep 3
is_complete || missed "a task that is complete: $(status)"
[ "$(pulls)" = "$before" ] || missed "a pull request as it was"

say "the pull request, as people see it"
people show

say "what is left"
git -c http.extraHeader="Authorization: Basic $(printf 'developer:%s' "$GITHUB_TOKEN" | base64)" clone -q "http://$hub/acme/sample.git" "$work/clone"
(cd "$work/clone" && GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-mod=mod go test ./units/) || missed "tests that pass on main"
git -C "$work/clone" log --format='%h %an: %s' -2
grep -q 453.59237 "$work/clone/units/units.go" || missed "the pounds"
[ -z "$(git -C "$work/clone" branch -r --list "*$task*")" ] || missed "the branch is still at GitHub"
"$ramus" ps | tee "$work/ps"
awk -v caller="conv:$task" '$1 == caller && /idle|busy/ { exit 1 }' "$work/ps" || missed "the container is still there"
"$ramus" log "conv:$task" | sed -n 1,12p
if grep -rlE 'ghs_[A-Z0-9]{20}|sk-demo|xoxb-demo' "$RAMUS_DATA" --include='*' --exclude=ramus.yaml; then missed "a secret is in one of these files"; fi

# The stand-ins print their complaints when they end.
for one in $standins; do
    kill "$one"
    wait "$one" || missed "a stand-in complains; see above"
done
standins=
cat "$work/model.log"
say "done in $(($(date +%s) - started)) s: task $task is complete, main has it, and the container is gone"
