# The functions of all demos. `stage NAME` makes the folder $work, which has all files of the demo. KEEP=1 keeps it. $server is
# the process of ramus once it has started, and $standins are the other programs to end.
# shellcheck shell=bash

# RAMUS is the path of a built binary.
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
    fi
    for one in $standins; do
        kill "$one" 2>/dev/null || true
        wait "$one" 2>/dev/null || true
    done
    # A server leaves its containers for its next start. A command that starts its own server removes them.
    case ${RAMUS_DATA:-} in "$work"/*) "$ramus" ps >/dev/null 2>&1 || true ;; esac
    if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
# lose_machine kills the server and its sandboxes, and removes its data folder.
lose_machine() {
    local file pid
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    server=
    # The runner of a sandbox has the outputs of its commands as file 4.
    for file in /proc/[0-9]*/fd/4; do
        case $(readlink "$file" 2>/dev/null) in "$RAMUS_DATA"/*)
            pid=${file#/proc/}
            kill -9 "${pid%%/*}" 2>/dev/null || true
            ;;
        esac
    done
    rm -rf "$RAMUS_DATA"
}
# serve starts ramus and waits until people and programs can reach it. It runs no ramus command for this, because a command
# starts a server of its own if none runs, and that server would exclude this one.
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

# `port N` prints a free port, for programs that must know each other's ports. Each N below 8 has another port. The kernel does
# not assign these ports to programs that ask for any port.
port() {
    local p
    while :; do
        p=$((20000 + RANDOM % 1500 * 8 + $1))
        (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
    done
}

# until_ok waits until a command succeeds: until_ok SECONDS COMMAND.
until_ok() {
    local limit=$1
    shift
    for _ in $(seq $((limit * 5))); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    missed "waited $limit s for: $*"
}

# agent_settings prints the configuration that the demos with an agent share. $web, $llm and $goroot are set, and the argument
# is the address of Slack.
agent_settings() {
    cat <<YAML
listen: $web
url: http://$web
engine: sandbox
sandbox:
  read_only: ["$goroot", "$work/bin"]
env:
  PATH: "$goroot/bin:/usr/local/bin:/usr/bin:/bin"
  GOROOT: "$goroot"
  GOTOOLCHAIN: local
  GOPROXY: "off"
slack:
  token_env: SLACK_BOT_TOKEN
  signing_secret_env: SLACK_SIGNING_SECRET
  url: http://$1/api/
models:
  anthropic:
    base_url: http://$llm/anthropic
    api_key_env: MODEL_KEY
agents:
  standin:
    kind: acp
    command: [$work/bin/acp-standin]
    state: [.acp-standin]
    checks: [test]
YAML
}
