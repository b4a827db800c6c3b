#!/usr/bin/env bash
# Shows ramus at work. It imports this checkout, runs examples/workflows/demo.yaml on it in a sandbox, and clones the result
# with a stock git client. The exit status is 0 only if all of this happened. All files are in a temporary folder. KEEP=1
# keeps it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
stage demo

export RAMUS_DATA=$work/data
mkdir -p "$RAMUS_DATA"
# The sandbox sees the host's /usr. Go may be in another folder.
goroot=$(go env GOROOT)
cat >"$RAMUS_DATA/ramus.yaml" <<YAML
listen: 127.0.0.1:0
engine: sandbox
sandbox:
  read_only: ["$goroot"]
env:
  PATH: "$goroot/bin:/usr/local/bin:/usr/bin:/bin"
  GOROOT: "$goroot"
  GOTOOLCHAIN: local
  GOPROXY: "off"
  GOFLAGS: -mod=mod
YAML

say "importing this checkout"
# A checkout may be shallow, or have no branch. The import has its HEAD as main.
git init -q --bare -b main "$work/source.git"
git push -q "$work/source.git" HEAD:refs/heads/main 2>/dev/null ||
    { git fetch -q --unshallow && git push -q "$work/source.git" HEAD:refs/heads/main; }
"$ramus" repo import demo "$work/source.git"

serve

say "running examples/workflows/demo.yaml"
started=$(date +%s)
"$ramus" run examples/workflows/demo.yaml --repo demo
echo "that took $(($(date +%s) - started)) s"

caller=$("$ramus" ps | awk 'NR == 2 { print $1 }')
branch=ramus/${caller/:/-}

say "the branch, one commit a command that changed something"
"$ramus" log "$caller"

say "the difference"
"$ramus" diff "$caller"

say "anybody can clone it"
line="git clone -q -b $branch $RAMUS_DATA/repos/demo.git $work/clone"
echo "$line"
$line
git -C "$work/clone" log --format='%h %an: %s%n%w(0,4,4)%(trailers:only)' -1
git -C "$work/clone" fetch -q origin 'refs/ramus/*:refs/ramus/*'
echo "journal: $(git -C "$work/clone" for-each-ref --format='%(refname)' refs/ramus/runs)"
git -C "$work/clone" fsck --strict --no-dangling
test -f "$work/clone/internal/redact/demo_test.go"
test "$(git -C "$work/clone" show origin/main:internal/redact/demo_test.go | head -1)" = "package redact"

say "done: main has it, and the branch stays"
