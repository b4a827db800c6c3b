#!/usr/bin/env bash
# Fails with CI=true if tests could not run on this machine. gotestsum runs it after the tests and prints those tests
# with their reasons.
set -euo pipefail

case "${CI:-}" in
1 | t | T | true | TRUE | True) ;;
*) exit 0 ;;
esac
missing=$(grep -cE '"Output":" *[^" ]+\.go:[0-9]+: cannot run here: ' "$GOTESTSUM_JSONFILE" || true)
if [ "$missing" -gt 0 ]; then
    echo "CI is set and $missing tests cannot run on this machine: see \"cannot run here\" above" >&2
    exit 1
fi
