#!/usr/bin/env bash
# Builds Gitea from its source at the Go proxy into bin/gitea, for tests and demos that need a real forge. It takes some
# minutes the first time, and nothing afterwards. It needs a C compiler, for SQLite.
#
#   scripts/gitea.sh [VERSION]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:-v1.25.4}
out=$PWD/bin/gitea
if [ "$(cat "$out/version" 2>/dev/null)" = "$version" ]; then
    exit 0
fi
source=$(cd / && GOFLAGS=-mod=mod go mod download -json "code.gitea.io/gitea@$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
[ -d "$source" ] || { echo "gitea: cannot download Gitea $version" >&2; exit 1; }
mkdir -p "$out"
echo "gitea: building Gitea $version"
(cd "$source" && nice go build -trimpath -buildvcs=false -tags 'sqlite sqlite_unlock_notify' -ldflags '-s -w' -o "$out/gitea.new" .)
rm -rf "$out/static"
mkdir "$out/static"
for dir in templates options public; do
    cp -r --no-preserve=mode "$source/$dir" "$out/static/"
done
mv "$out/gitea.new" "$out/gitea"
echo "$version" >"$out/version"
