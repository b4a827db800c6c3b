#!/usr/bin/env bash
# Builds images of the Dockerfile in its folder. Quick when nothing changed: an image
# carries a hash of what it was made from.
#
#   containers/image/build.sh [task | browser | browser-video | task-browser]…
#
# Without a target it is the task image (make image). The browser's take what make browser has put
# into bin/browser (so does task-browser, for builders that build all targets above one).
#
#   IMAGE           the tag to give to the only target; default ramus/task:latest,
#                   ramus/browser:latest, ramus/browser:video, ramus/task-browser:latest
#   BASE_IMAGE      the base; default node:22-bookworm-slim where it can be
#                   pulled, else one that base.sh makes here
#   EXTRA_PACKAGES  further Debian packages, "golang-go cargo"
#   FORCE=1         builds again, from the newest packages
#   V=1             shows the builders' own output
#
# Certificates of this machine's owner (/usr/local/share/ca-certificates) and of
# containers/image/certs are trusted in the image: behind a proxy that re-signs
# https nothing could be fetched otherwise.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
driver=$here/../../bin/browser
targets=("${@:-task}")
upstream=node:22-bookworm-slim
local_base=ramus/base:local

say() { echo "image: $*"; }
die() { echo "image: $*" >&2; exit 1; }

command -v docker >/dev/null || die "cannot run here: there is no docker command (make setup)"
timeout 30 docker version --format '{{.Server.Version}}' >/dev/null 2>&1 ||
    die "cannot run here: no Docker engine answers (make setup starts one; DOCKER_HOST is ${DOCKER_HOST:-not set})"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
context=$work/context

# tag prints the name of a target's image.
tag() {
    case "$1" in
    task) echo "${IMAGE:-ramus/task:latest}" ;;
    browser) echo "${IMAGE:-ramus/browser:latest}" ;;
    browser-video) echo "${IMAGE:-ramus/browser:video}" ;;
    task-browser) echo "${IMAGE:-ramus/task-browser:latest}" ;;
    *) die "there is no target $1" ;;
    esac
}
if [ -n "${IMAGE:-}" ] && [ "${#targets[@]}" -gt 1 ]; then die "IMAGE names one image, and ${#targets[@]} are asked for"; fi
wanted=()
failed=
for target in "${targets[@]}"; do
    tag "$target" >/dev/null
    if [ "$target" = task ] || [ -x "$driver/ramus-browser" ]; then
        wanted+=("$target")
    else
        say "cannot build $target: bin/browser is empty, make browser fills it"
        failed=1
    fi
done

mkdir -p "$context/certs"
cp "$here/Dockerfile" "$here/chromium.sh" "$context/"
for cert in /usr/local/share/ca-certificates/*.crt "$here"/certs/*.crt; do
    if [ -f "$cert" ]; then cp "$cert" "$context/certs/"; fi
done
touch "$context/certs/.keep"

# inputs prints the hash of all that a target is made from.
inputs() {
    {
        (cd "$context" && cat Dockerfile chromium.sh certs/*) | sha256sum
        sha256sum <"$here/base.sh"
        # The task images are none the older for a new program of the browser's.
        if [[ $1 == browser* ]]; then (cd "$driver" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); fi
        printf '%s\n' "$1" "${BASE_IMAGE:-}" "${EXTRA_PACKAGES:-}" "$(uname -m)"
    } | sha256sum | cut -d' ' -f1
}
stale=()
for target in "${wanted[@]}"; do
    if [ -z "${FORCE:-}" ] &&
        [ "$(docker image inspect --format '{{index .Config.Labels "ramus.inputs"}}' "$(tag "$target")" 2>/dev/null)" = "$(inputs "$target")" ]; then
        say "$(tag "$target") is up to date"
    else
        stale+=("$target")
    fi
done
if [ "${#stale[@]}" -eq 0 ]; then exit ${failed:-0}; fi

# quietly runs a command; its output is shown when it fails, or with V=1.
quietly() {
    if [ -n "${V:-}" ]; then "$@"; return; fi
    "$@" >"$work/log" 2>&1 || { local code=$?; tail -n 60 "$work/log" >&2; return "$code"; }
}

# again tries a command a second time: what it fetches from mirrors and registries may not come
# the first time. The builder keeps the steps that went well.
again() {
    "$@" && return
    say "that failed; once more"
    sleep 10
    "$@"
}

# pull fetches an image. A registry that has said nothing for 30 s counts as
# out of reach; one that has begun may take its time.
pull() {
    local out=$work/pull pid waited=0 result=0
    docker pull "$1" >"$out" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        waited=$((waited + 1))
        if { [ ! -s "$out" ] && [ "$waited" -gt 150 ]; } || [ "$waited" -gt 4500 ]; then kill "$pid" 2>/dev/null || true; fi
    done
    wait "$pid" || result=$?
    if [ "$result" -ne 0 ]; then say "cannot pull $1: $(tail -n 1 "$out" | cut -c 1-200)"; fi
    return "$result"
}

base=${BASE_IMAGE:-}
if [ -z "$base" ]; then
    if docker image inspect "$upstream" >/dev/null 2>&1 && [ -z "${FORCE:-}" ]; then
        base=$upstream
    elif say "pulling $upstream" && pull "$upstream"; then
        base=$upstream
    elif docker image inspect "$upstream" >/dev/null 2>&1; then
        base=$upstream
    else
        say "making a base here instead"
        if [ -n "${FORCE:-}" ]; then docker image rm --no-prune "$local_base" >/dev/null 2>&1 || true; fi
        again "$here/base.sh" "$local_base"
        base=$local_base
    fi
fi

args=(--build-arg "BASE_IMAGE=$base" --build-arg "EXTRA_PACKAGES=${EXTRA_PACKAGES:-}")
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
    if [ -n "${!name:-}" ]; then args+=(--build-arg "$name"); fi # predeclared: not kept in the image
done
if command -v npm >/dev/null; then
    registry=$(npm config get registry 2>/dev/null || true)
    case "$registry" in
    *@* | "" | undefined) ;; # an address with a password in it would stay in the image's history
    *) args+=(--build-arg "NPM_CONFIG_REGISTRY=$registry") ;;
    esac
fi
if [ -n "${FORCE:-}" ]; then args+=(--no-cache); fi

for target in "${stale[@]}"; do
    image=$(tag "$target") began=$SECONDS
    rm -rf "$context/browser"
    if [ "$target" != task ]; then cp -r "$driver" "$context/browser"; fi
    say "building $image on $base"
    # The host's network: proxies on its loopback are reached, and an engine whose
    # bridge is missing or switched off can build too.
    again quietly docker build --network host --target "$target" --label "ramus.inputs=$(inputs "$target")" "${args[@]}" -t "$image" "$context" ||
        die "building $image failed"
    size=$(docker image inspect --format '{{.Size}}' "$image")
    say "$image is built ($((size / 1000000)) MB, $((SECONDS - began)) s)"
done
exit ${failed:-0}
