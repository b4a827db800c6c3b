#!/usr/bin/env bash
# Measures the statements that the tests reach (make cover), by room. A statement counts as reached if the tests of any
# package reach it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p dist
profile=dist/cover.out
go test -count=1 -coverpkg=./... -coverprofile="$profile" ./... | grep -v '^ok\|no test files\|coverage: 0.0%' || true
module=$(go list -m)
awk -v module="$module/" '
    NR > 1 { statements[$1] = $2; if ($3 > 0) hit[$1] = 1 }
    END {
        for (block in statements) {
            room = substr(block, length(module) + 1)
            sub(/:.*/, "", room)
            if (!sub(/\/[^\/]*$/, "", room)) room = "."
            n[room] += statements[block]; all += statements[block]
            if (block in hit) { h[room] += statements[block]; allhit += statements[block] }
        }
        for (room in n) printf "%5.1f %%  %s\n", 100 * h[room] / n[room], room | "sort -k3"
        close("sort -k3")
        if (all) printf "%5.1f %%  everything\n", 100 * allhit / all
    }' "$profile"
