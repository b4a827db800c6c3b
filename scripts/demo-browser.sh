#!/usr/bin/env bash
# Shows how ramus checks a page. It imports examples/web, runs a workflow that changes the page on a branch, and has a real
# browser check the page at both sizes, before and after. Then it breaks the page in four ways, and each check must report
# the fault. Everything runs in sandboxes, without Docker. The exit status is 0 only if all of this happened.
#
# All files are in a temporary folder. KEEP=1 keeps it, so that the pages can be opened. RAMUS is the path of a built binary,
# with the folder browser next to it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
stage browser

started=$(date +%s)
export RAMUS_DATA=$work/data
mkdir -p "$RAMUS_DATA"
listen=127.0.0.1:$(port 0)
registry=$(npm config get registry 2>/dev/null)
host=${registry#*://}
host=${host%%/*}
host=${host##*@} # the list of hosts must not contain a password
node=$(dirname "$(readlink -f "$(command -v node)")")
cat >"$RAMUS_DATA/ramus.yaml" <<YAML
listen: $listen
url: http://$listen
engine: sandbox
sandbox:
  read_only: ["$(dirname "$node")"]
# The dependencies of the page come from this host, which may be a mirror with an address that is not public. No other
# host is allowed.
egress: [{host: "$host", private: true}]
env:
  PATH: "$node:/usr/local/bin:/usr/bin:/bin"
  NPM_CONFIG_REGISTRY: "${registry%%://*}://$host/${registry#*://*/}"
  NODE_EXTRA_CA_CERTS: /etc/ssl/certs/ca-certificates.crt
YAML

say "importing examples/web"
git init -q -b main "$work/web"
git ls-files -z -- examples/web | xargs -0 cp --parents -t "$work"
cp -r "$work/examples/web/." "$work/web"
git -C "$work/web" add -A
git -C "$work/web" -c user.name=demo -c user.email=demo@localhost commit -qm "The page of the larder"
"$ramus" repo import web "$work/web"

serve

# look runs a workflow, saves its evidence in the folder $work/NAME, and sets $run and $index.
look() {
    "$ramus" run "$work/web/.ramus/workflows/$1.yaml" --repo web | tee "$work/$1.log" || true
    run=$(grep -o 'run:[a-z0-9-]*/[0-9a-f-]*' "$work/$1.log" | head -n 1)
    [ -n "$run" ] || missed "a run of $1"
    "$ramus" evidence "$run" --save "$work/$1" >/dev/null
    index=$work/$1/artifacts/browser/index.json
    [ -s "$index" ] || missed "artifacts/browser/index.json of $run"
}
# shown prints checks with their reasons and the differences from before.
shown() {
    jq -r '.checks[] | "  \(.verdict)  \(.name): \(.reason)",
        (.views[] | "        \(.viewport.name) \(.viewport.width)x\(.viewport.height)  \(.verdict)  \(.requests) requests, \(.duration_ms) ms"),
        (.compare // empty | "        before: \(.verdict) at \(.commit[:10])",
            (.views[]? | "        \(.viewport) differs in \(.changed * 1000 | round / 10) % of its pixels, in \(.boxes | length | if . == 1 then "1 place" else "\(.) places" end)"))' "$index"
}

say "a workflow changes the page on a branch, and a browser looks at it"
look goes-off-next
shown
jq -e '.checks | length == 1 and all(.verdict == "PASS" and (.views | length == 2 and all(.verdict == "PASS"))
    and .compare.verdict == "PASS" and (.compare.views | length == 2 and all(.changed > 0 and .triptych != null)))' "$index" >/dev/null ||
    missed "a check that passes at both sizes, before and after"
jq -r '.checks[0].compare.views[] | select(.viewport == "mobile").aria' "$index" | sed 's/^/        /'
changed=$run page=$("$ramus" evidence "$run" --link)

say "the evidence opens by its link, in Playwright's trace viewer too"
curl -sSf -o "$work/page.html" "$page" || missed "the run's page"
# linked prints the first address on the page that contains a text.
linked() { grep -o "href=\"[^\"]*$1[^\"]*\"" "$work/page.html" | head -n 1 | sed "s|^href=\"|http://$listen|; s|\"\$||; s|&amp;|\&|g"; }
triptych=$(linked desktop/triptych.png) zip=$(linked desktop/trace.zip?) viewer=$(linked /trace/index.html)
begins() { # ADDRESS BYTES
    curl -sSfL -o "$work/opened" "$1" && head -c 200 "$work/opened" | grep -qaF -- "$2" || missed "$1 opens"
    echo "  ${1%%\?*}"
}
begins "${triptych%&view=1}" PNG
begins "$zip" PK
begins "$viewer" '<!'

say "four faults, and what a check says of each"
look planted-faults
shown
# fault NAME PATTERN checks that both views failed for the reason that the pattern matches.
fault() {
    jq -e --arg name "$1" --arg why "$2" '.checks[] | select(.name == $name) | .verdict == "FAIL" and (.reason | test($why))' "$index" >/dev/null ||
        missed "$1: FAIL because of $2"
}
fault "console error" "the larder is on fire"
fault "answer with 500" "/api/larder.*500|500.*/api/larder"
fault "failing step" "step 2.*4 things"
fault "dead port" "5174"
[ "$(jq '.checks | length' "$index")" = 4 ] || missed "four checks"

say "done in $(($(date +%s) - started)) s: a page was changed and checked, and four faults were found"
if [ -z "${KEEP:-}" ]; then
    echo "KEEP=1 make demo-browser keeps the pictures, the pages and the traces."
    exit
fi
cat <<TEXT
The pictures:      $work/goes-off-next/artifacts/browser
To open the rest:  RAMUS_DATA=$RAMUS_DATA $ramus serve
The change:        $page
before and after:  $triptych
its trace:         $viewer
The faults:        $("$ramus" evidence "$run" --link)
In a terminal:     RAMUS_DATA=$RAMUS_DATA $ramus artifacts $changed
TEXT
