#!/bin/sh
# Fails unless ramus has verified the files of a commit. CHECK_COMMIT is the last commit of the pull request. RAMUS_URL and
# RAMUS_TOKEN are those of the server; a token that reads is enough. It needs git, and ramus in the PATH.
#
# The trailers of the commit name the run. Whoever pushes chooses trailers, so ramus compares the commit with the last one
# of the run as well.
set -eu
: "${RAMUS_URL:?}" "${RAMUS_TOKEN:?}" "${CHECK_COMMIT:?}"
commit=$(git rev-parse --verify "$CHECK_COMMIT^{commit}")
trailer() { git log -1 --format="%(trailers:key=$1,valueonly,separator=%x2C)" "$commit"; }
caller=$(trailer Ramus-Caller) run=$(trailer Ramus-Run)
if [ -z "$caller" ] || [ -z "$run" ]; then
    echo "$commit is no work of ramus, so there is no evidence" >&2
    exit 1
fi
exec ramus evidence "$caller/$run" --commit "$commit"
