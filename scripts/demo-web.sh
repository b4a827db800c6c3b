#!/usr/bin/env bash
# Shows the pages of ramus. A real Chromium signs in by the owner's link, imports the sample repository, makes a workspace, types commands,
# asks an agent (acp-standin), answers it with one of its own options, and goes on while the server is killed in the middle of a sentence and
# under an open terminal. It stops and starts the workspace, and goes on at the size of a phone. The exit status is 0 only if all of this
# happened within 90 s. The pictures are in bin/demo-web. All other files are in a temporary folder.
#
# RAMUS is the path of a built binary. OUT is another folder for the pictures, and MOST another time ("3m"). KEYS=1 uses the keyboard alone.
# REVIEW=1 shows the review of scripts/demo-review.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
stage web

# Containers run as another user, who must reach the programs.
chmod 755 "$work"
mkdir -p "$work/agent"
cp "$ramus" "$work/ramus"
CGO_ENABLED=0 go build -o "$work/agent/acp-standin" ./internal/standin/acp-standin
go build -o "$work/demoweb" ./internal/demoweb
chmod 755 "$work/ramus" "$work/agent" "$work/agent/acp-standin"

say "a real Chromium at the pages of ramus"
"$work/demoweb" -ramus "$work/ramus" -agent "$work/agent/acp-standin" -sample examples/sample \
    -out "${OUT:-bin/demo-web}" -most "${MOST:-90s}" ${KEYS:+-keys} ${REVIEW:+-review}
