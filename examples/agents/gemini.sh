#!/bin/sh
# Starts Gemini CLI, having mended its sessions before: 0.61.0 cannot go on with
# them as it leaves them.
#
# It records what a tool gave back twice, beside the call and as a message of its
# own. With a session resumed it sends both, and the API refuses a call with two
# results (https://github.com/google-gemini/gemini-cli/issues/29365). So the
# messages are taken out; what stands beside the calls has it all.
#
# Over ACP a session that is loaded in the minute in which it began is begun anew
# first, in a file of the same name. So the file gets a name without a time.
set -eu
for session in "$HOME"/.gemini/tmp/*/chats/session-*.jsonl; do
    [ -f "$session" ] || continue
    kept=${session%/*}/session-kept-${session##*-}
    if ! [ -e "$kept" ]; then
        mv "$session" "$kept"
        session=$kept
    fi
    jq -c 'def result: .type == "user" and (.content | type == "array" and length > 0 and
            all(.[]; type == "object" and has("functionResponse")));
        if ."$set".messages? then ."$set".messages |= map(select(result | not)) else select(result | not) end' \
        "$session" >"$session.mended" || { rm -f "$session.mended"; continue; } # it was cut off
    mv "$session.mended" "$session"
done
exec gemini "$@"
