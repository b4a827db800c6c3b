#!/usr/bin/env bash
# Makes a release in dist/: static programs, packages, an image, their list of modules, checksums and version.json.
#
#   scripts/release.sh VERSION      VERSION is v1.2.3, or a name for a trial
#
#   ARCHS       the architectures, default "amd64 arm64"; the image is made for this machine's alone
#   NFPM        the program nfpm; by default it is fetched and built, in the release that is named below
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:?usage: scripts/release.sh VERSION}
nfpm_release=v2.43.0
here=$(go env GOARCH)
rm -rf dist
go run ./internal/webbuild
mkdir -p dist
for arch in ${ARCHS:-amd64 arm64}; do
    echo "release: ramus for linux/$arch"
    CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w' -o "dist/runner" ./cmd/ramus-runner
    gzip -9nc dist/runner >cmd/ramus/ramus-runner.gz
    CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -tags ramusrunner,ramusweb -ldflags "-s -w -X main.version=$version" -o "dist/ramus_$arch" ./cmd/ramus
    go run ./internal/release sbom "dist/ramus_$arch" "dist/ramus_$arch.cdx.json"
    number=${version#v}
    case $number in [0-9]*) ;; *) number=0.0.0~$number ;; esac
    for kind in deb rpm; do
        sed "s|\${ARCH}|$arch|g; s|\${VERSION}|$number|; s|\${DIST}|dist|" packaging/nfpm.yaml >dist/nfpm.yaml
        if [ -n "${NFPM:-}" ]; then "$NFPM" package -f dist/nfpm.yaml -p $kind -t dist/; else
            go run "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_release" package -f dist/nfpm.yaml -p $kind -t dist/
        fi
    done
    if [ "$arch" = "$here" ]; then go run ./internal/release image "dist/ramus_$arch" dist/runner "$arch" "$version" "dist/ramus_${version}_$arch.oci.tar"; fi
    rm dist/runner
done
rm -f dist/nfpm.yaml cmd/ramus/ramus-runner.gz
cp packaging/ramus.service packaging/compose.yaml dist/
go run ./internal/release index "$version" "$(date -u +%Y-%m-%d)" dist
ls -l dist
