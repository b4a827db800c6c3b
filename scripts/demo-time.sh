#!/usr/bin/env bash
# Shows how ramus goes back. Three runs make 64 commands, of which one plants a fault, and all of it is merged. Then the fault
# is found, explained, taken out, and its good steps are brought back. A command that changed one pixel of a page is found.
# Commands are run again, work begins again at a step, a push runs a workflow, a known check is not run again, and branches
# that do not merge are shown before anybody merges them. The runs go to another server, a run that is taken out of the
# evidence is found, two agents do one task, and at the end the server's data is lost and a stand-by takes its place. Each
# answer is compared with the planted one and with stock git. The exit status is 0 only if all of them are right. All files
# are in a temporary folder. KEEP=1 keeps it.
#
# RAMUS is the path of a built binary with the folder browser next to it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
stage time

started=$(date +%s)
export RAMUS_DATA=$work/data
mkdir -p "$RAMUS_DATA"
export GIT_CONFIG_GLOBAL=$work/gitconfig
git config --global user.name Ada
git config --global user.email ada@localhost
listen=127.0.0.1:$(port 0)
cat >"$RAMUS_DATA/ramus.yaml" <<YAML
listen: $listen
url: http://$listen
engine: sandbox
standby: {allow: true}
agents:
  brief:
    kind: command
    command: [sh, -c, 'cat >/dev/null; echo open >sign']
  wordy:
    kind: command
    command: [sh, -c, 'cat >/dev/null; for i in 1 2 3 4 5; do echo open >>sign; done']
YAML

# quoted prints words as a person types them.
quoted() {
    local word
    for word in "$@"; do
        case $word in
        '' | *[!A-Za-z0-9_@%+=:,./-]*) printf " '%s'" "${word//\'/\'\\\'\'}" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    echo
}

# clipped prints the first lines of its input and the last ones, $1 and $2 of them.
clipped() {
    awk -v first="$1" -v last="$2" '{ line[NR] = $0 }
        END { for (i = 1; i <= NR; i++) if (NR <= first + last || i <= first || i > NR - last) print line[i]; else if (i == first + 1) print "…" }'
}

# type_in prints a command, runs it, keeps its output in $said, and prints the beginning and the end of that. It returns the
# command's status. With PICTURES, a folder, and $picture, a name, it writes the command and its output to a file there, and
# its milliseconds to the file times. With $as the command has other words there, and $begins and $ends
# are the numbers of lines.
picture= as= begins= ends=
type_in() {
    local status=0 began=${EPOCHREALTIME//[.,]/} typed
    typed="\$$(quoted "${@/#"$ramus"/ramus}")"
    echo "$typed"
    said=$("$@" 2>&1) || status=$?
    clipped 26 9 <<<"$said" | sed 's/^/  /'
    if [ -n "${PICTURES:-}" ] && [ -n "$picture" ]; then
        { echo "${as:-$typed}"; clipped "${begins:-8}" "${ends:-9}" <<<"$said"; } | sed "s#$work/##g; s#$(hostname):#shop:#g; s#127\.0\.0\.1:[0-9]*#ramus.example.org#g; s# *\$##; s#^\(.\{126\}\).\{2,\}#\1…#" \
            >"$PICTURES/$picture"
        echo "$picture $(((${EPOCHREALTIME//[.,]/} - began) / 1000))" >>"$PICTURES/times"
        picture= as= begins= ends=
    fi
    return $status
}
shown() { type_in "$@" || missed "the success of $*"; }
refused() { ! type_in "$@" || missed "a failure of $*"; }
# told fails unless what was said last matches a pattern.
told() { grep -Eq -- "$1" <<<"$said" || missed "an answer that matches $1"; }

repo=$RAMUS_DATA/repos/till.git
left=$((100 + RANDOM % 1000)) top=$((200 + RANDOM % 600)) # the place of the planted pixel
at_base() { git -C "$repo" show "main:$1"; }

# flow NAME FROM TO prints a workflow whose steps put one item each on the shelf. Step 37 changes the till as well, by the
# sign that its input has. Step 50 writes the time. Step 12 changes the colour of the page, and step 23 one pixel of it.
flow() {
    local n
    printf 'id: %s\nrepo: {id: till}\n' "$1"
    [ "$2" -gt 37 ] || [ "$3" -lt 37 ] || printf 'input:\n  sign: {type: string, default: "-"}\n'
    echo nodes:
    for n in $(seq "$2" "$3"); do
        printf '  - id: s%s\n' "$n"
        case $n in
        37) printf '    run: sed -i "s/total.price/total"{{input.sign}}"price/" till.sh; echo item 37 >shelf/37; echo the till is rounded\n' ;;
        12) printf '    run: echo item 12 >shelf/12; echo "p{color:navy}" >>style.css\n' ;;
        23) printf '    run: echo item 23 >shelf/23; echo "b{left:%spx;top:%spx;background:red}" >>style.css\n' "$left" "$top" ;;
        50) printf '    run: echo item 50 >shelf/50; date +%%N >stamp\n' ;;
        *) printf '    run: echo item %s >shelf/%s\n' "$n" "$n" ;;
        esac
    done
}

say "a shop: a till that adds up, and a shelf"
git init -q -b main "$work/till"
mkdir "$work/till/shelf"
cat >"$work/till/till.sh" <<'SH'
total=0
while read -r item price; do
  total=$((total+price))
done
echo "$total"
SH
cat >"$work/till/Makefile" <<'MAKE'
test:
	@test "$$(printf 'tea 3\nrice 4\n' | sh till.sh)" = 7
MAKE
cat >"$work/till/ci.yaml" <<'YAML'
id: ci
repo: {id: till}
input:
  greeting: {type: string, required: true}
nodes:
  - id: greet
    run: echo {{input.greeting}} from a container
  - id: test
    run: make test
YAML
echo closed >"$work/till/door"
echo '<!doctype html><title>till</title><link rel=icon href="data:,"><link rel=stylesheet href=style.css><p>The till</p><b></b>' \
    >"$work/till/index.html"
echo 'b{position:absolute;width:1px;height:1px}' >"$work/till/style.css"
cat >"$work/page.yaml" <<'YAML'
start: python3 -m http.server --bind 127.0.0.1 8123
url: http://127.0.0.1:8123/
viewports: [desktop]
YAML
echo 0 >"$work/till/shelf/0"
git -C "$work/till" add -A
git -C "$work/till" -c user.name=demo -c user.email=demo@localhost commit -qm "A till and a shelf"
begin=$(git -C "$work/till" rev-parse HEAD)
"$ramus" repo import till "$work/till"
serve

say "64 commands in three runs, one of them with a fault; all of it is merged"
for run in "first 1 30 rebase" "second 31 40 merge" "third 41 64 merge"; do
    read -r name from to way <<<"$run"
    # shellcheck disable=SC2086
    flow $name $from $to >"$work/$name.yaml"
    "$ramus" exec "$name" --repo till -- true
    "$ramus" run "$work/$name.yaml" --caller "run:$name" | tail -n 4 | head -n 1
    "$ramus" merge "run:$name" --here --strategy "$way"
done
[ "$(at_base shelf/64)" = "item 64" ] || missed "64 items on the shelf"
if git -C "$repo" show main:till.sh | grep 'total+price' >/dev/null; then missed "the fault"; fi

say "since when is the till wrong? four containers look at the base at once"
picture=bisect begins=6 ends=30
shown "$ramus" bisect main --good "$begin" -- make -s test
told 'is the first bad commit \([1-3] rounds'
told 'command +sed -i .*till\.sh'
told 'output +the till is rounded'
told '^\+ *total=\$\(\(total-price\)\)'
bad=$(grep -Eo '^[0-9a-f]{40}' <<<"$said")
rm -rf "$work/stock"
git clone -q "file://$repo" "$work/stock"
git -C "$work/stock" bisect start main "$begin" >/dev/null
git -C "$work/stock" bisect run make -s test >"$work/bisect.log" 2>&1 || missed "git bisect: $(tail -n 3 "$work/bisect.log")"
[ "$(git -C "$work/stock" rev-parse refs/bisect/bad)" = "$bad" ] || missed "the commit that git bisect finds"
echo "git bisect run, one after the other, finds the same commit"

say "since when is there a dot at $left, $top of the page? a browser looks"
picture=page begins=6 ends=24
shown "$ramus" bisect first --spec "$work/page.yaml" --region "$((left - 20)),$((top - 20)),40,40"
told 'is the first bad commit'
told 'command +echo item 23 '
told 'desktop differs by 0\.06 %'
"$ramus" bisect first --spec "$work/page.yaml" --region "$((left - 20)),$((top - 20)),40,40" --json >"$work/pictures" 2>/dev/null
for name in good bad diff; do
    jq -e --arg name "$name" '.pictures[0][$name].name | startswith("artifacts/browser/")' "$work/pictures" >/dev/null || missed "the $name picture"
done

say "why is the line as it is?"
picture=why
shown "$ramus" why till.sh:3
told "commit +${bad:0:10}"
told 'run +run:second/.*s37'
told 'output +the till is rounded'

say "the run is taken out of the base, although later work builds on it"
"$ramus" exec tidy --repo till -- 'sed -i "s/total-price/total-price-0/" till.sh'
"$ramus" merge tidy --here >/dev/null
before=$(git -C "$repo" rev-parse main)
picture=conflict
refused "$ramus" undo run:second --here
told 'conflict in till\.sh with [0-9a-f]{10} run:tidy/'
told 'nothing was changed'
[ "$(git -C "$repo" rev-parse main)" = "$before" ] || missed "an unchanged base"
shown "$ramus" undo run:tidy --here
picture=undo
shown "$ramus" undo run:second --here
told 'taking 10 commits of run:second/'
at_base till.sh | cmp - "$work/till/till.sh" || missed "the till as it was"
if git -C "$repo" cat-file -e main:shelf/31 2>/dev/null; then missed "a shelf without item 31"; fi
[ "$(at_base shelf/64)" = "item 64" ] || missed "the later work"

say "its good steps come back"
picture=pick
# shellcheck disable=SC2046
shown "$ramus" pick run:second $(seq -f s%.0f 31 36) $(seq -f s%.0f 38 40) --here
told 'bringing 9 commits of run:second/'
at_base till.sh | cmp - "$work/till/till.sh" || missed "the till as it was"
[ "$(git -C "$repo" ls-tree --name-only main shelf/ | wc -l)" = 64 ] || missed "64 files on the shelf"

say "do the same commands do the same again?"
shown "$ramus" replay run:first
told '^reproducible: 30 same, 0 different, 0 left out'
picture=replay
refused "$ramus" replay run:third --step s49 --step s50 --step s51
told '^s50 differs: '
told '^ *stamp:1: '
told '^differs: 2 same, 1 different'

say "work begins again at the step with the fault, in two ways"
picture=fork
shown "$ramus" fork run:second@s37 again
"$ramus" exec again -- 'cat till.sh; ls shelf' >"$work/again"
grep -q 'total+price' "$work/again" || missed "the till before step 37"
grep -qx 36 "$work/again" && ! grep -qx 37 "$work/again" || missed "the shelf before step 37"
picture=restart
shown "$ramus" run "$work/second.yaml" --of run:second --from s37 --input sign=+
told ' complete in '
branch=$(grep -Eo 'ramus/run-[a-z0-9-]+' <<<"$said" | head -n 1)
git -C "$repo" show "$branch:till.sh" | cmp - "$work/till/till.sh" || missed "a till that adds up"
[ "$(git -C "$repo" show "$branch:shelf/40")" = "item 40" ] || missed "the steps after it"

say "a push runs a workflow, and shows it"
token=$("$ramus" token create --subject ada --repo till --scope write --for 1h)
git -C "$work/stock" bisect reset >/dev/null 2>&1
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraHeader GIT_CONFIG_VALUE_0="Authorization: Bearer $token"
git -C "$work/stock" remote set-url origin "http://$listen/till.git"
git -C "$work/stock" fetch -q origin
git -C "$work/stock" checkout -q -B topic origin/main
echo open >"$work/stock/door"
git -C "$work/stock" -c user.name=ada -c user.email=ada@localhost commit -qam "Open the door"
picture=push
shown git -C "$work/stock" push -q -o run=ci.yaml -o param.greeting=hello origin HEAD:topic
told '^remote: +hello from a container'
told '^remote: ramus: complete in '
git -C "$work/stock" checkout -q -B broken "$bad"
shown git -C "$work/stock" push -q -o test origin HEAD:broken
told '^remote: ramus: FAILED after '
unset GIT_CONFIG_COUNT

say "a check that is known is not run again"
shown "$ramus" exec again --pure -- 'date +%s%N >/dev/shm/now; cat /dev/shm/now'
first=$said
"$ramus" fork run:again twin
picture=known
shown "$ramus" exec twin --pure -- 'date +%s%N >/dev/shm/now; cat /dev/shm/now'
[ "$(head -n 1 <<<"$said")" = "$(head -n 1 <<<"$first")" ] || missed "the known result"
shown "$ramus" exec twin --pure --fresh -- 'date +%s%N >/dev/shm/now; cat /dev/shm/now'
[ "$(head -n 1 <<<"$said")" != "$(head -n 1 <<<"$first")" ] || missed "a new result"

say "branches that do not merge are shown before anybody merges"
"$ramus" exec left --repo till -- 'echo ajar >door'
picture=radar
shown "$ramus" radar till --of left
told '^ramus/run-left  conflicts with  topic|^topic  conflicts with  ramus/run-left'
told '^  door  line'
if git -C "$repo" merge-tree --write-tree topic ramus/run-left >/dev/null; then missed "the conflict that git finds"; fi

say "the runs leave in one file, which stock git opens and another server takes in"
picture=export
shown "$ramus" export run:second -o "$work/second.bundle"
git clone -q "$work/second.bundle" "$work/opened"
git -C "$work/opened" diff --quiet HEAD "$(git -C "$repo" rev-parse ramus/run-second)" || missed "the branch in the file"
tag=$(git -C "$work/opened" tag --list 'ramus/run-second/run/*' | tail -n 1)
git -C "$work/opened" show "$tag:run.json" | grep -Eq '"caller": *"run:second"' || missed "the record of a run in the file"
picture=import
RAMUS_DATA=$work/other shown "$ramus" import "$work/second.bundle" --repo till --new
told 'run:second .*on till'
RAMUS_DATA=$work/other shown "$ramus" log second
told 's37 .*sed -i|sed -i .*till\.sh'

say "two agents do one task, and evidence decides"
picture=tournament begins=12
shown "$ramus" tournament "write a sign" --repo till --agents wordy,brief --name cup
told '^1 +cup-2 +brief '
told '^2 +cup-1 +wordy .*size'
picture=take
shown "$ramus" tournament take cup 2 --drop --here
[ "$(at_base sign)" = open ] || missed "the sign of the winner"
if git -C "$repo" rev-parse -q --verify refs/heads/ramus/run-cup-1 >/dev/null; then missed "no branch of the other one"; fi

if [ -n "${PICTURES:-}" ]; then
    say "a command that a rule of the base names waits for a person"
    "$ramus" exec law --repo till -- 'mkdir -p .ramus; echo "rules: [{run: rm shelf/*, then: ask, reason: the shelf is for sale}]" >.ramus/rules.yaml'
    "$ramus" merge law --here
    "$ramus" exec clerk --repo till -- 'rm shelf/1' >"$work/clerk.log" 2>&1 &
    clerk=$!
    until_ok 30 grep -q 'waits for a person' "$work/clerk.log"
    picture=ask as="\$$(quoted ramus exec clerk --repo till -- 'rm shelf/1')"
    shown cat "$work/clerk.log"
    picture=approve
    shown "$ramus" approve "$(grep -Eo 'run:clerk/[0-9a-f-]+' "$work/clerk.log" | head -n 1)" --comment 'one is enough'
    wait "$clerk" || missed "the command that was approved: $(cat "$work/clerk.log")"
fi

say "anybody can check that no run was changed or taken out"
shown "$ramus" verify till
told '^till: verified, [0-9]+ links, [0-9]+ runs'
git clone -q --mirror "file://$repo" "$work/mirror"
curl -s "http://$listen/.well-known/allowed_signers" >"$work/signers"
git -C "$work/mirror" rev-list refs/ramus/seals | while read -r link; do
    git -C "$work/mirror" -c gpg.ssh.allowedSignersFile="$work/signers" verify-commit "$link" 2>/dev/null || echo "$link"
done | head -n 1 >"$work/unsigned"
[ ! -s "$work/unsigned" ] || missed "a good signature of $(cat "$work/unsigned")"
shown "$ramus" verify "$work/mirror" --key "$work/signers"
git -C "$work/mirror" update-ref -d "$(git -C "$work/mirror" for-each-ref --format='%(refname)' --count=1 refs/ramus/runs/run-second)"
picture=verify
refused "$ramus" verify "$work/mirror" --key "$work/signers"
told '^missing seal  run-second/'

say "another machine follows, this one is lost with its data, and the work goes on"
(umask 077; "$ramus" token create --subject standby --repo '*' --scope admin --for 1h >"$work/token")
"$ramus" standby --data "$work/second" --of "http://$listen" --token-file "$work/token" >"$work/standby.log" 2>&1 &
standby=$!
standins="$standins $standby"
"$ramus" exec left -- 'echo shut >door; git log -1 --format=%H' >/dev/null
tip=$(git -C "$repo" rev-parse ramus/run-left)
at_standby() { [ "$(git -C "$work/second/repos/till.git" rev-parse ramus/run-left)" = "$tip" ]; }
until_ok 60 at_standby
picture=standby
shown "$ramus" standby --status
told '1 stand-by'
lose_machine
export RAMUS_DATA=$work/second
picture=promote
shown "$ramus" promote
told 'this is the server now, in epoch 2'
until_ok 30 "$ramus" ps
shown "$ramus" exec left -- 'cat door'
told '^  *shut|^shut'
shown "$ramus" verify till
told '^till: verified'

took=$(($(date +%s) - started))
[ "$took" -lt 180 ] || missed "an end within 3 minutes: it took $took s"
say "done in $took s: each answer is the planted one"
