#!/bin/sh
# Deploys ramus to a machine in five phases. Each may be repeated, and a phase that changes nothing says so.
#
#   deploy.sh infrastructure   the network, the server, the disk, the bucket, the names and the keys, by Pulumi
#   deploy.sh configuration    ramus.yaml and the keys
#   deploy.sh application      the program, next to those of earlier versions, and a restart
#   deploy.sh nodes            the programs of nodes for two architectures, which the server signs and serves
#   deploy.sh health           waits until the server answers with the new version, or rolls back to the last good one
#   deploy.sh rollback         the last good version and its configuration
#   deploy.sh                  the five phases
#
# DIST      the folder of a release, as `make release` writes it (dist)
# CONFIG    the configuration (ramus.yaml)
# STACK     the stack of Pulumi (prod); PULUMI=program (pulumi); INFRA=folder of the program (deploy/pulumi)
# ON        the command that runs a shell on the machine, such as "ssh root@app.example.org"; empty is this machine
# ROOT      the folder below which everything is put on the machine (empty); ARCH is that of the machine (amd64)
# RESTART   the command that restarts the server (systemctl restart ramus); URL is where it answers
# OWNER     the user and the group of the server (ramus). It may read the configuration, and owns the keys. A machine that does
#           not have it keeps the files of the one who deploys
# WAIT      seconds until the server has to answer (60)
set -eu
dist=${DIST:-dist} config=${CONFIG:-ramus.yaml} arch=${ARCH:-amd64} root=${ROOT:-} wait=${WAIT:-60}
owner=${OWNER:-ramus}
restart=${RESTART:-systemctl restart ramus} pulumi=${PULUMI:-pulumi} stack=${STACK:-prod} infra=${INFRA:-deploy/pulumi}
etc=$root/etc/ramus versions=$root/opt/ramus programs=$root/var/lib/ramus-programs

say() { echo "deploy: $*"; }
die() {
    echo "deploy: $*" >&2
    exit 1
}

# on runs a script on the machine. Its input is a file, which the script may read.
on() { ${ON:-} sh -c "$(quote "set -eu; umask 022; $1")" </dev/null; }
put() { ${ON:-} sh -c "$(quote "set -eu; umask 022; $1")"; }

# quote protects a word from the shell of ssh.
quote() {
    if [ -z "${ON:-}" ]; then printf %s "$1"; else printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; fi
}

# replace MODE FILE [USER:GROUP] puts standard input into a file of the machine, and says whether that changed it.
replace() {
    put "f='$2'; mkdir -p \"\$(dirname \"\$f\")\"; umask 077; cat >\"\$f.new\"
        if cmp -s \"\$f.new\" \"\$f\"; then rm \"\$f.new\"; said=same
        else chmod $1 \"\$f.new\"; mv \"\$f.new\" \"\$f\"; said=changed; fi
        if [ -n '${3:-}' ] && [ \"\$(id -u)\" = 0 ] && getent group '$owner' >/dev/null; then chown '${3:-}' \"\$f\"; fi
        echo \$said"
}

infrastructure() {
    command -v "$pulumi" >/dev/null || die "cannot go on: the program $pulumi is missing"
    (cd "$infra" && "$pulumi" up --yes --non-interactive --stack "$stack") || die 'infrastructure: Pulumi failed, see above'
    say 'infrastructure: as described'
}

# secret NAME prints a secret of the stack. It goes through pipes alone.
secret() { (cd "$infra" && "$pulumi" stack output --show-secrets --stack "$stack" "$1"); }

configuration() {
    [ -s "$config" ] || die "configuration: $config is missing"
    on "mkdir -p '$programs/amd64' '$programs/arm64'" # the server refuses a configuration with a folder that is missing
    say "configuration: ramus.yaml is $(replace 0640 "$etc/ramus.yaml" "root:$owner" <"$config")"
    for key in sealKey commitKey; do
        value=$(secret $key) && [ -n "$value" ] || die "configuration: the stack has no $key"
        say "configuration: $key is $(printf '%s\n' "$value" | replace 0600 "$etc/$key" "$owner:$owner")"
    done
}

# checked ARCH checks the program of the release.
checked() {
    file=ramus_$1
    [ -s "$dist/$file" ] || die "there is no $dist/$file (make release VERSION=…)"
    (cd "$dist" && grep " [ *]\{0,1\}$file\$" SHA256SUMS | sha256sum --quiet -c -) || die "$dist/$file has a wrong sum"
}

application() {
    checked "$arch"
    sum=$(sha256sum "$dist/ramus_$arch" | cut -c1-16)
    if [ "$(on "cat '$versions/current/sum' 2>/dev/null || true")" = "$sum" ]; then
        say 'application: it is installed'
    else
        # Nothing that runs is replaced. The last step is the rename of a link.
        put "d='$versions/$sum'; mkdir -p \"\$d\"; cat >\"\$d/ramus.new\"; chmod 0755 \"\$d/ramus.new\"
            mv \"\$d/ramus.new\" \"\$d/ramus\"; echo '$sum' >\"\$d/sum\"
            ln -sfn '$sum' '$versions/next'; mv -T '$versions/next' '$versions/current'" <"$dist/ramus_$arch"
        say "application: $sum is installed"
    fi
    on "$restart" || say 'application: the restart failed, which the health will show'
}

nodes() {
    for a in amd64 arm64; do
        checked $a
        say "nodes: ramus for $a is $(replace 0755 "$programs/$a/ramus" <"$dist/ramus_$a")"
        for file in "$dist/programs/$a"/*; do # such as a kubelet
            [ -f "$file" ] || continue
            say "nodes: ${file##*/} for $a is $(replace 0755 "$programs/$a/${file##*/}" <"$file")"
        done
    done
}

# healthy reports whether the server answers with the version that is installed, and serves programs for two architectures.
healthy() {
    want=$(on "'$versions/current/ramus' version 2>/dev/null | head -n 1" || true)
    [ -n "$want" ] || return 1
    end=$(($(date +%s) + wait))
    while [ "$(date +%s)" -le $end ]; do
        answer=$(on "curl -fsS --max-time 5 '$URL/health'" 2>/dev/null || true)
        version=$(printf %s "$answer" | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p')
        case " $want " in
        *" ${version:-none} "*)
            on "curl -fsS --max-time 120 '$URL/api/agent/SHA256SUMS'" | awk '$2 == "amd64/ramus" || $2 == "arm64/ramus"' | wc -l |
                grep -qx ' *2' && return 0
            ;;
        esac
        sleep 1
    done
    return 1
}

health() {
    : "${URL:?URL is needed, such as https://api.ramus.example.org}"
    if healthy; then
        on "readlink '$versions/current' >'$versions/good.new'; cp -p '$etc/ramus.yaml' '$versions/good.yaml'; mv '$versions/good.new' '$versions/good'"
        say "health: version $version answers"
        return
    fi
    say "health: no answer of the new version after $wait s"
    rollback
    die 'health: rolled back; the new version is not in use'
}

rollback() {
    on "good=\$(cat '$versions/good' 2>/dev/null) || { echo 'deploy: there is no good version to go back to' >&2; exit 1; }
        ln -sfn \"\$good\" '$versions/next'; mv -T '$versions/next' '$versions/current'
        cp -p '$versions/good.yaml' '$etc/ramus.yaml.new'; mv '$etc/ramus.yaml.new' '$etc/ramus.yaml'" || exit 1
    on "$restart" || true
    healthy || die 'rollback: the last good version does not answer either'
    say 'rollback: the last good version answers'
}

[ $# -gt 0 ] || set -- infrastructure configuration application nodes health
for phase; do
    case $phase in
    infrastructure | configuration | application | nodes | health | rollback) $phase ;;
    *) die "there is no phase $phase" ;;
    esac
done
