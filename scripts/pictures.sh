#!/usr/bin/env bash
# Makes the pictures of docs/going-back.md: the commands and outputs of make demo-time, and the time that each took. In the page
# a picture is a block after a line "<!-- picture NAME -->", and a time is a number before "<!-- ms NAME -->".
#
# RAMUS is the path of a built binary. With PICTURES, a folder that an earlier demo wrote, no demo runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

page=$(mktemp)
made=
trap 'rm -rf "$page" "$made"' EXIT
if [ -z "${PICTURES:-}" ]; then
    made=$(mktemp -d "${TMPDIR:-/tmp}/ramus-pictures.XXXXXX")
    export PICTURES=$made
    scripts/demo-time.sh
fi
awk -v dir="$PICTURES" '
    function figure(text,    name) {
        while (match(text, /[0-9,]+ ms<!-- ms [a-z]+ -->/)) {
            name = substr(text, RSTART, RLENGTH); sub(/.*<!-- ms /, "", name); sub(/ -->/, "", name)
            printf "%s%s ms<!-- ms %s -->", substr(text, 1, RSTART - 1), took[name], name
            text = substr(text, RSTART + RLENGTH)
        }
        print text
    }
    BEGIN {
        while ((getline line < (dir "/times")) > 0) { split(line, part, " "); took[part[1]] = part[2] >= 1000 ? int(part[2] / 1000) "," sprintf("%03d", part[2] % 1000) : part[2] }
    }
    /^<!-- picture [a-z]+ -->$/ {
        name = $3
        print; print "```console"
        if ((getline line < (dir "/" name)) <= 0) { print "no picture " name > "/dev/stderr"; exit 1 }
        do print line; while ((getline line < (dir "/" name)) > 0)
        print "```"
        skipping = 1; fences = 0
        next
    }
    skipping { if (/^```/ && ++fences == 2) skipping = 0; next }
    { figure($0) }
' docs/going-back.md >"$page"
cat "$page" >docs/going-back.md
