#!/usr/bin/env bash
# Sets up a Debian or Ubuntu machine for ramus. It installs missing packages, and starts a Docker engine if none runs. It
# reports each step that fails or is not permitted, and continues. The tests then report which of them cannot run.
#
#   scripts/setup.sh          for make test
#   scripts/setup.sh demo     for make demo, without Docker and test tools
#   scripts/setup.sh browser  for make demo-browser, demo-web and demo-review, as demo, and with a browser
#   scripts/setup.sh team     for make demo-team, as demo, and with PostgreSQL and a C compiler for Gitea
#
# It needs root or sudo only if something is missing. DOCKERD_ARGS has arguments for an engine that it starts.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

what=${1:-test}
state=${XDG_STATE_HOME:-$HOME/.local/state}/ramus

say() { echo "setup: $*"; }

# as_root runs a command as root. It fails instead of asking for a password without a terminal.
if [ "$(id -u)" -eq 0 ]; then
    may_root=yes
    as_root() { "$@"; }
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    may_root=yes
    as_root() { sudo "$@"; }
else
    may_root=
    as_root() { return 1; }
fi

# patiently tries a command three times, because a download may fail the first time.
patiently() {
    "$@" && return
    sleep 5
    "$@" && return
    sleep 20
    "$@"
}

has() { command -v "$1" >/dev/null 2>&1; }
# Only Debian's own interpreter sees Debian's python3-* packages.
has_module() { [ -x /usr/bin/python3 ] && /usr/bin/python3 -c "import $1" >/dev/null 2>&1; }
has_headers() { [ -e /usr/include/stdlib.h ]; }
engine_answers() { has docker && timeout 15 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
has_chromium() { [ -x /usr/lib/chromium/chromium-headless-shell ]; }
has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }
has_font() { [ -e "/usr/share/fonts/truetype/$1" ]; }
# With an engine on another machine (DOCKER_HOST), only the client is needed here.
has_engine() { has docker && { has dockerd || engine_answers; }; }

# probe, then the package that satisfies it
needs=("has git:git" "has make:make" "has bwrap:bubblewrap")
if [ "$what" = test ] || [ "$what" = browser ]; then
    # The fonts are the same as in the browser's image.
    needs+=(
        "has_chromium:chromium-headless-shell" "has curl:curl" "has jq:jq"
        "has_font liberation:fonts-liberation" "has_font dejavu:fonts-dejavu-core" "has_font noto/NotoColorEmoji.ttf:fonts-noto-color-emoji"
    )
fi
if [ "$what" = team ]; then
    needs+=("has curl:curl" "has jq:jq" "has gcc:gcc" "has_headers:libc6-dev" "has_postgres:postgresql")
fi
if [ "$what" = test ]; then
    needs+=(
        "has_engine:docker.io" "has iptables:iptables"       # the container engine
        "has mmdebstrap:mmdebstrap" "has newuidmap:uidmap" # the image
        "has gcc:gcc" "has_headers:libc6-dev"                # the race detector
        "has cloud-init:cloud-init" "has nft:nftables"       # they check the files that new machines get
        "has gh:gh" "has ssh:openssh-client" "has capsh:libcap2-bin"
        "has ps:procps" "has xz:xz-utils" "has python3:python3"
        "has_postgres:postgresql" "has redis-server:redis-server" # services of the stories
        "has git-lfs:git-lfs" "has jgit:jgit-cli" "has_module dulwich:python3-dulwich" "has_module pygit2:python3-pygit2"
    )
fi
missing=()
for need in "${needs[@]}"; do
    ${need%%:*} || missing+=("${need#*:}")
done

if [ "${#missing[@]}" -eq 0 ]; then
    say "all packages are here"
elif ! has apt-get; then
    say "missing: ${missing[*]} (their Debian names); this is no Debian: install them by hand"
elif [ -z "$may_root" ]; then
    say "missing, and neither root nor sudo to install it: apt-get install ${missing[*]}"
else
    say "installing ${missing[*]}"
    log=$(mktemp)
    # Packages of servers start these when they are installed, unless this file forbids it.
    policy=/usr/sbin/policy-rc.d
    forbade=
    if ! [ -e "$policy" ] && printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy"; then
        forbade=yes
        trap 'as_root rm -f "$policy"' EXIT
    fi
    install() {
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
            install --no-install-recommends "$@" >"$log" 2>&1
    }
    # For apt, a mirror that does not respond is not an error, and its packages are then unknown.
    refresh() {
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o APT::Update::Error-Mode=any update >"$log" 2>&1
    }
    # Until this repairs a killed installation, apt installs nothing.
    as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >"$log" 2>&1 || say "dpkg --configure -a failed: $(tail -n 1 "$log")"
    patiently refresh || say "cannot refresh the package lists: $(tail -n 1 "$log")"
    if ! install "${missing[@]}"; then
        # One by one, because one unknown package would prevent the installation of all others.
        for package in "${missing[@]}"; do
            install "$package" || say "cannot install $package: $(tail -n 1 "$log")"
        done
    fi
    rm -f "$log"
    if [ -n "$forbade" ]; then
        as_root rm -f "$policy"
        trap - EXIT
    fi
fi

if has go; then say "$(go version)"; else say "missing: Go (https://go.dev/dl)"; fi
# This script does not install Node, because the program that drives the browser needs a newer one than Debian 12 has.
if { [ "$what" = test ] || [ "$what" = browser ]; } && { ! has npm || ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; }; then
    say "missing: Node 20 or newer with npm; without it there are no checks of pages, no images without an image registry, and no tests of the JavaScript git client"
fi

if has bwrap; then
    if said=$(bwrap --unshare-all --ro-bind / / true 2>&1); then
        say "Sandbox: works"
    else
        say "Sandbox: does not work: $said"
        say "  where the kernel forbids user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
    fi
fi
if [ "$what" != test ]; then exit 0; fi

# Otherwise many builds would fetch them concurrently, and the tests of a package fail if one of its modules fails.
if has go; then
    said=$(patiently go mod download 2>&1) || say "cannot fetch the Go modules: $(tail -n 1 <<<"$said")"
fi

# The program that builds images of development containers, for their tests.
devcontainers=0.89.0
if has npm && ! [ -x bin/devcontainer/node_modules/.bin/devcontainer ]; then
    said=$(patiently npm install --no-fund --no-audit --no-save --prefix bin/devcontainer "@devcontainers/cli@$devcontainers" 2>&1) ||
        say "cannot fetch @devcontainers/cli: $(tail -n 1 <<<"$said")"
fi

# What the terminal of pages is made of, and what pages are tested with.
if has npm && ! { [ -d gateway/web/node_modules/axe-core ] && [ -d gateway/web/node_modules/@xterm/headless ]; }; then
    said=$(cd gateway/web && patiently npm ci --ignore-scripts --no-fund --no-audit 2>&1) || say "cannot fetch the packages of gateway/web: $(tail -n 1 <<<"$said")"
fi

# dockerd_runs reports whether an engine runs, even if it does not respond yet.
dockerd_runs() { grep -qsE '^[0-9]+ \(dockerd\) [^ZX]' /proc/[0-9]*/stat; }

# wait_for_engine waits until the engine responds, as long as its process runs.
wait_for_engine() {
    local end=$((SECONDS + 180)) seen=$SECONDS
    while [ "$SECONDS" -lt "$end" ]; do
        if engine_answers; then return 0; fi
        if dockerd_runs; then
            seen=$SECONDS
        elif [ $((SECONDS - seen)) -ge 5 ]; then
            return 1
        fi
        sleep 0.5
    done
    return 1
}

# forget_dead removes the files of a killed engine. If another process has its number by now, the next engine would take that
# process for a running engine and not start.
forget_dead() {
    local of file
    for of in dockerd:/var/run/docker.pid dockerd:/var/run/docker-ssd.pid containerd:/var/run/docker/containerd/containerd.pid; do
        file=${of#*:}
        if as_root test -s "$file" && [ "$(cat "/proc/$(as_root cat "$file")/comm" 2>/dev/null)" != "${of%%:*}" ]; then as_root rm -f "$file"; fi
    done
}

# mount_cgroups mounts the cgroups as an init system would. An engine starts without the controllers, but its containers do
# not.
mount_cgroups() {
    if grep -q ' cgroup2\? ' /proc/mounts || [ ! -d /sys/fs/cgroup ]; then return 0; fi
    local names name
    # Controllers that version 1 already uses are not available in version 2.
    names=$(awk '!/^#/ && $2 != 0 && $4 == 1 { print $1 }' /proc/cgroups)
    if [ -z "$names" ]; then
        as_root mount -t cgroup2 cgroup2 /sys/fs/cgroup && say "cgroups: version 2 mounted"
        return 0
    fi
    as_root mount -t tmpfs -o mode=0755 cgroup /sys/fs/cgroup || return 0
    for name in $names; do
        as_root mkdir -p "/sys/fs/cgroup/$name"
        as_root mount -t cgroup -o "$name" cgroup "/sys/fs/cgroup/$name" || as_root rmdir "/sys/fs/cgroup/$name"
    done
    say "cgroups: version 1 mounted"
}

# start_dockerd starts an engine in the background, for machines without an init system.
start_dockerd() {
    local log=$state/dockerd.log pid
    mkdir -p "$state"
    forget_dead
    as_root rm -f "$state/dockerd.pid"
    # shellcheck disable=SC2024,SC2086 # the log is ours; the arguments are words
    as_root setsid -f sh -c 'echo $$ >"$0"; exec dockerd "$@"' "$state/dockerd.pid" "$@" ${DOCKERD_ARGS:-} </dev/null >"$log" 2>&1
    if wait_for_engine; then
        say "Docker: started dockerd, its log is $log"
        return 0
    fi
    say "Docker: dockerd does not answer; the end of $log:"
    tail -n 15 "$log" | sed 's/^/    /'
    pid=$(cat "$state/dockerd.pid" 2>/dev/null || true)
    if [ -n "$pid" ] && as_root kill "$pid" 2>/dev/null; then
        # The next engine finds the files of this one as long as it runs.
        for _ in $(seq 60); do
            as_root kill -0 "$pid" 2>/dev/null || break
            sleep 0.5
        done
    fi
    return 1
}

if engine_answers; then
    :
elif [ -n "${DOCKER_HOST:-}" ]; then
    say "Docker: no answer from DOCKER_HOST=$DOCKER_HOST"
elif ! has dockerd; then
    say "Docker: no engine is installed"
elif [ -z "$may_root" ]; then
    say "Docker: no engine answers, and neither root nor sudo to start one"
elif [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ] && as_root docker version >/dev/null 2>&1; then
    say "Docker: an engine runs, but not for this user: sudo usermod -aG docker $(id -un), then log in again"
elif [ -d /run/systemd/system ]; then
    as_root systemctl start docker || say "Docker: systemctl start docker failed"
    wait_for_engine || say "Docker: started by systemd, but no answer: journalctl -u docker"
else
    mount_cgroups
    forget_dead
    # An engine that its package or another user has started may not respond yet.
    if dockerd_runs || { [ -x /etc/init.d/docker ] && [ -z "${DOCKERD_ARGS:-}" ] && as_root service docker start >/dev/null 2>&1; }; then
        wait_for_engine || true
    fi
    # An engine that cannot set up its networks is sufficient, because containers have none, and images are built in the
    # host's network. With live-restore, containers survive a restart of the engine.
    engine_answers || start_dockerd --live-restore ||
        start_dockerd --live-restore --bridge=none --iptables=false --ip6tables=false
fi
if engine_answers; then
    say "Docker: $(docker version --format 'Engine {{.Server.Version}}, API {{.Server.APIVersion}}')"
fi
exit 0
