#!/bin/sh
# Repairs the sessions of Gemini CLI and starts it, because 0.61.0 cannot continue
# its own sessions.
#
# It records the result of a tool twice, with the call and as a separate message.
# In a resumed session it sends both, and the API refuses a call with two results
# (https://github.com/google-gemini/gemini-cli/issues/29365). The script removes the
# messages. The results with the calls are complete.
#
# Over ACP, a session that is loaded in the minute of its start is first replaced by
# a new one in a file of the same name. The script renames the file, without a time.
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
        "$session" >"$session.new" || { rm -f "$session.new"; continue; } # it was cut off
    mv "$session.new" "$session"
done
exec gemini "$@"
