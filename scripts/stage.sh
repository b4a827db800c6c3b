# What every demo stands on: `stage NAME` makes its folder, $work. Everything
# lies in it; KEEP=1 leaves it behind. $server is ramus, once it was
# started, $standins are other programs to be ended.
# shellcheck shell=bash

# RAMUS names a binary that is built already.
ramus=${RAMUS:-$PWD/bin/ramus}
unset RAMUS
server= standins=

stage() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/ramus-$1.XXXXXX")
    trap strike EXIT
}
strike() {
    local one
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        # The server leaves its containers to the next one; a command that brings its own removes them.
        "$ramus" ps >/dev/null 2>&1 || true
    fi
    for one in $standins; do
        kill "$one" 2>/dev/null || true
        wait "$one" 2>/dev/null || true
    done
    if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
# serve starts ramus and waits until people and programs find it. No command is asked for that:
# until the server is there it would bring its own, which keeps this one out.
serve() {
    "$ramus" serve >"$work/serve.log" 2>&1 &
    server=$!
    until grep -q 'msg="serving HTTP"' "$work/serve.log" 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || missed "a server"
        sleep 0.1
    done
}
say() { printf '\n== %s\n' "$*"; }
missed() {
    printf '\nmissed: %s\n' "$*" >&2
    [ ! -e "$work/serve.log" ] || tail -n 40 "$work/serve.log" >&2
    exit 1
}

# `port N` prints a free one, for those who have to know each other's: another one for each
# N below 8, and none that the kernel gives to somebody who does not say which he wants.
port() {
    local p
    while :; do
        p=$((20000 + RANDOM % 1500 * 8 + $1))
        (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
    done
}
