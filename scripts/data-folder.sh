#!/usr/bin/env bash
# Makes a data folder in the format of this checkout's bin/ramus, as it is after a kill, and packs it for the test of
# upgrades (cmd/ramus/testdata/upgrade). It is run once for each release, and never changed afterwards.
#
#   scripts/data-folder.sh NAME      writes cmd/ramus/testdata/upgrade/NAME.tar.gz
set -euo pipefail
name=${1:?usage: scripts/data-folder.sh NAME}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ramus=${RAMUS_BINARY:-$root/bin/ramus}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work RAMUS_DATA=$work/data RAMUS_POOL=0 GIT_CONFIG_NOSYSTEM=1 TZ=UTC
git config --global user.name Ada
git config --global user.email ada@example.org
cd "$work"
git init -q -b main up
echo hello >up/README
git -C up add README
git -C up commit -qm begin
cat >wf.yaml <<'WF'
id: greet
repo: {id: app}
nodes:
  - id: one
    run: echo one > one.txt
  - id: two
    run: cat one.txt
WF
"$ramus" serve --listen '' 2>"$work/log" &
server=$!
until [ -S data/ramus.sock ]; do sleep 0.1; done
git clone -q --bare up up.git
"$ramus" repo import app up.git 2>/dev/null
"$ramus" repo create empty
"$ramus" exec merged --repo app -- 'echo merged > merged.txt'
"$ramus" merge --here merged
"$ramus" exec open --repo app -- 'echo open > open.txt; head -c 9000000 /dev/zero > /artifacts/large.bin'
"$ramus" exec open -- 'exit 3' || true
"$ramus" run wf.yaml
"$ramus" exec busy --repo app -- 'echo begun > begun.txt; sleep 600' >/dev/null 2>&1 &
until ls data/live/*busy*/*.output/*.stdout >/dev/null 2>&1; do sleep 0.1; done
kill -9 $server
wait $server 2>/dev/null || true
sed -i "s|$work/up.git|https://example.org/app.git|" data/repos/app.git/config
# What the next server finds and what belongs to this machine differ: only the former is kept.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=2026-01-01 -C data \
    --exclude=./keys --exclude=./layers --exclude=./hosts --exclude=./sandbox --exclude=./programs --exclude='./ramus.*' --exclude='*.lock' --exclude=hooks \
    -cf - . | gzip -9n >"$root/cmd/ramus/testdata/upgrade/$name.tar.gz"
"$ramus" stop busy >/dev/null 2>&1 || true
ls -l "$root/cmd/ramus/testdata/upgrade/$name.tar.gz"
