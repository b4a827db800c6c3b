#!/usr/bin/env bash
# Builds MinIO from its source at the Go proxy into bin/minio, for tests that need a real S3. It takes some minutes the first
# time, and nothing afterwards.
#
#   scripts/minio.sh [VERSION]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:-v0.0.0-20260212201848-7aac2a2c5b7c}
out=$PWD/bin/minio
if [ "$(cat "$out/version" 2>/dev/null)" = "$version" ]; then
    exit 0
fi
source=$(cd / && GOFLAGS=-mod=mod go mod download -json "github.com/minio/minio@$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
[ -d "$source" ] || { echo "minio: cannot download MinIO $version" >&2; exit 1; }
mkdir -p "$out"
echo "minio: building MinIO $version"
(cd "$source" && CGO_ENABLED=0 nice go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/minio.new" .)
mv "$out/minio.new" "$out/minio"
echo "$version" >"$out/version"
