#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (make fuzz). The default is 10s.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
while read -r dir; do
    for target in $(go test -list '^Fuzz' "$dir" | grep '^Fuzz' || true); do
        echo "fuzz: $dir $target"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" "$dir" || failed=$((failed + 1))
    done
done < <(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
if [ "$failed" -gt 0 ]; then
    echo "fuzz: $failed targets failed; their inputs are under testdata/fuzz" >&2
    exit 1
fi
