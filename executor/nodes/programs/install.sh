#!/bin/sh
# Installs programs of a ramus server: install.sh [PROGRAM…], by default ramus. Nothing is installed unless the signature of
# the sums and the sum of each program are right. BIN is the folder (/usr/local/bin).
set -eu
url='@URL@'
signer='@SIGNER@'
bin=${BIN:-/usr/local/bin}
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*)
    echo "install.sh: there are no programs for $(uname -m)" >&2
    exit 1
    ;;
esac
command -v ssh-keygen >/dev/null || {
    echo 'install.sh: ssh-keygen is missing (apt-get install openssh-client)' >&2
    exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
get() { curl -fsS --retry 5 --retry-connrefused -o "$dir/$1" "$url/api/agent/$1"; }
get SHA256SUMS
get SHA256SUMS.sig
printf '%s\n' "$signer" >"$dir/signers"
ssh-keygen -q -Y verify -f "$dir/signers" -I ramus -n ramus-programs -s "$dir/SHA256SUMS.sig" <"$dir/SHA256SUMS" || {
    echo 'install.sh: the signature of the sums is wrong, so nothing is installed' >&2
    exit 1
}
[ $# -gt 0 ] || set -- ramus
mkdir -p "$dir/$arch" "$bin"
for program; do
    grep "^[0-9a-f]\{64\}  $arch/$program\$" "$dir/SHA256SUMS" >"$dir/sum" || {
        echo "install.sh: the server has no $program for $arch" >&2
        exit 1
    }
    get "$arch/$program"
    (cd "$dir" && sha256sum --quiet -c sum) || {
        echo "install.sh: $program has a wrong sum, so nothing is installed" >&2
        exit 1
    }
done
for program; do
    install -m 0755 "$dir/$arch/$program" "$bin/$program.new"
    mv "$bin/$program.new" "$bin/$program"
done
