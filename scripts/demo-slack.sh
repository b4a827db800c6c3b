#!/usr/bin/env bash
# Shows ramus in a Slack thread. A stand-in of Slack on loopback delivers signed events and shows the threads in the
# terminal. A mention tests the sample repository in a sandbox. A second mention continues on the same branch. A thread that
# the gate does not allow goes to the fallback runner. The exit status is 0 only if all of this happened. All files are in a
# temporary folder. KEEP=1 keeps it.
#
#   scripts/demo-slack.sh         the demo (make demo-slack)
#   scripts/demo-slack.sh smoke   only the smoke test of the gate (make smoke-slack), with a
#                                 thread that is not allowed, one that is, and one with the
#                                 prefix; the runner of each is logged and posted
#
# RAMUS is the path of a built binary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
what=${1:-demo}
case $what in demo | smoke) ;; *) echo "usage: demo-slack.sh [smoke]" >&2; exit 2 ;; esac
stage slack

go build -o "$work/slack-standin" ./internal/standin/slack-standin
slack=127.0.0.1:$(port 0) web=127.0.0.1:$(port 1) elsewhere=127.0.0.1:$(port 2)

export SLACK_BOT_TOKEN=xoxb-demo-token SLACK_SIGNING_SECRET=demo-signing-secret FALLBACK_SECRET=demo-fallback-secret
export RAMUS_DATA=$work/data
mkdir -p "$RAMUS_DATA"
goroot=$(go env GOROOT)
cat >"$RAMUS_DATA/ramus.yaml" <<YAML
listen: $web
url: http://$web
engine: sandbox
sandbox:
  read_only: ["$goroot"]
env:
  PATH: "$goroot/bin:/usr/local/bin:/usr/bin:/bin"
  GOROOT: "$goroot"
  GOTOOLCHAIN: local
  GOPROXY: "off"
slack:
  token_env: SLACK_BOT_TOKEN
  signing_secret_env: SLACK_SIGNING_SECRET
  url: http://$slack/api/
gate:
  enabled: true
  thread_starters: [U0A5KQ7U3N3]
  requesters: [U0REVIEW]
fallback:
  url: http://$elsewhere/
  secret_env: FALLBACK_SECRET
YAML

git init -q -b main "$work/sample"
cp -r examples/sample/. "$work/sample"
git -C "$work/sample" add -A
git -C "$work/sample" -c user.name=demo -c user.email=demo@localhost commit -qm "The sample"
"$ramus" repo import sample "$work/sample"

serve

smoke() {
    cat <<'THREADS'
verify 120
# A visitor's thread goes to the fallback runner, as if ramus were not there.
say visitor #builds @ramus the nightly build is red, please look
wait 120 fallback runner looks after this
# The prefix lets one mention of an allowed user through, in anybody's thread.
reply reviewer @ramus !!! exec git log --oneline -1
wait 120 explicit-prefix
wait 120 Done
# For others it is just three characters.
reply visitor @ramus !!! exec git log --oneline -1
wait 120 fallback runner looks after this
# A thread of somebody whose threads are let through.
say developer #general @ramus exec git log --oneline -1
wait 120 thread-starter-allowlist
wait 120 Done
THREADS
}

demo() {
    cat <<'THREADS'
verify 120
# A thread of somebody whose threads are let through.
say developer #builds @ramus test ./units/...
wait 300 (?s)Done.*passed
# The same thread, the same branch: a change, the tests again, and what changed.
reply developer @ramus exec echo '// Checked by hand.' >> units/units.go && go vet ./units/...
wait 120 unverified
reply developer @ramus test ./units/...
wait 300 (?s)Done.*passed
reply developer @ramus diff
wait 120 Checked by hand
reply developer @ramus status
wait 120 3 runs
THREADS
    smoke | grep -v '^verify'
}

"$what" >"$work/threads"
"$work/slack-standin" -listen "$slack" -ramus "http://$web" -fallback "$elsewhere" \
    -users U0A5KQ7U3N3=developer,U0REVIEW=reviewer,U0GUEST=visitor <"$work/threads" || { cat "$work/serve.log" >&2; exit 1; }

echo
echo "== which runner each mention got, and why (the server's log)"
grep -o 'runner=[a-z]* reason=[a-z-]*' "$work/serve.log" | sort | uniq -c
for line in "runner=container reason=thread-starter-allowlist" "runner=fallback reason=not-allowlisted" "runner=container reason=explicit-prefix"; do
    grep -q "$line" "$work/serve.log" || { echo "the log lacks $line" >&2; exit 1; }
done

echo
echo "== the branches and the records of the threads"
"$ramus" ps
for b in $(git -C "$RAMUS_DATA/repos/sample.git" for-each-ref --format='%(refname:short)' refs/heads/ramus); do
    git -C "$RAMUS_DATA/repos/sample.git" log --format='%h %an: %s' "main..$b"
done
git -C "$RAMUS_DATA/repos/sample.git" fsck --strict --no-dangling
