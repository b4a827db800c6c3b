#!/usr/bin/env bash
# Runs commands, clones, pushes, merges and prunes on a server for SOAK seconds (1800), and compares the server's resident
# memory and open packs with those of a new process on the same data. Ends with 0 only if the memory is at most 1.3
# times that of the new one and no removed pack is open.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
stage soak

export RAMUS_DATA=$work/data
mkdir -p "$RAMUS_DATA"
printf 'listen: 127.0.0.1:0\nengine: sandbox\n' >"$RAMUS_DATA/ramus.yaml"
git init -q -b main "$work/source"
git -C "$work/source" config user.name Soak
git -C "$work/source" config user.email soak@example.com
for i in $(seq 200); do seq "$i" $((i + 500)) >"$work/source/f$i"; done
git -C "$work/source" add -A
git -C "$work/source" commit -qm "Begin"
"$ramus" repo import soak "$work/source"

# measure prints the resident MiB, the number of open packs, and the number of open packs that have been removed.
measure() {
    local fds
    fds=$(ls -l "/proc/$server/fd" 2>/dev/null || true)
    echo "$(($(awk '/^VmRSS/ { print $2 }' "/proc/$server/status") / 1024))" \
        "$(grep -c 'pack-.*\.pack' <<<"$fds" || true)" "$(grep -c 'objects/pack/pack-.*(deleted)' <<<"$fds" || true)"
}

# round performs each operation once.
round() {
    local n=$1 clone=$work/clone$1
    "$ramus" exec "run:soak$n" --repo soak -- "echo $n >> f$((n % 200 + 1))" >/dev/null
    git clone -q "$url" "$clone"
    git -C "$clone" config user.name Soak
    git -C "$clone" config user.email soak@example.com
    echo "$n" >"$clone/n$((n % 50))"
    git -C "$clone" add -A
    git -C "$clone" commit -qm "Round $n" || true
    git -C "$clone" push -q origin "HEAD:refs/heads/push$n"
    "$ramus" merge "run:soak$n" --here >/dev/null || true
    rm -rf "$clone"
    if ((n % 10 == 0)); then
        git --git-dir "$RAMUS_DATA/repos/soak.git" repack -adq || true
        "$ramus" prune >/dev/null || true
    fi
}

# up starts a server and reads its address.
up() {
    serve
    address=$(grep -o 'msg="serving HTTP".*' "$work/serve.log" | grep -oE '127\.0\.0\.1:[0-9]+' | head -1)
    url=http://x:$("$ramus" token create --subject soak --scope read,write)@$address/soak.git
}

up
end=$((SECONDS + ${SOAK:-1800}))
n=0
while ((SECONDS < end)); do
    n=$((n + 1))
    round "$n"
    if ((n % 20 == 0)); then echo "round $n, $((end - SECONDS)) s left: $(measure)"; fi
done
read -r old open deleted <<<"$(measure)"
say "after $n rounds: $old MiB, $open open packs, $deleted of them removed"

kill "$server"
wait "$server" || true
up
for i in 1 2 3; do round "$((n + i))"; done
read -r new open deleted2 <<<"$(measure)"
say "a new process on the same data: $new MiB, $open open packs"
if ((deleted > 0)); then missed "packs that are closed when they are removed"; fi
if ((old * 10 > new * 13)); then missed "at most 1.3 times the memory of a new process: $old and $new MiB"; fi
say "done: $old MiB is at most 1.3 times $new MiB"
