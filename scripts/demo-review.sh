#!/usr/bin/env bash
# Shows a review. In a real Chromium two people comment on lines of a branch, an agent (acp-standin) answers with commits, the comments follow
# their lines, a suggestion is taken, the timeline is walked through by keys, the workspace is forked in its middle, and the branch is merged.
# Both people sign in by a stand-in of GitHub. The exit status is 0 only if all of this happened within 3 minutes. The pictures, at both
# sizes, are in bin/demo-review. All other files are in a temporary folder.
#
# RAMUS is the path of a built binary. OUT is another folder for the pictures, and MOST another time ("5m").
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
OUT=${OUT:-bin/demo-review} MOST=${MOST:-3m} REVIEW=1 exec scripts/demo-web.sh
