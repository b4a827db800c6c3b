#!/usr/bin/env bash
# Shows ramus in a Kubernetes cluster of this machine. The chart makes two replicas of it. A repository is imported, a workflow and 20
# callers work in pods, a kubelet is killed in the middle of a command, the repository moves to the other replica while somebody
# pushes, and that replica is killed. When no node has room, ramus orders a machine at a stand-in of a cloud, whose kubelet, a real
# one in namespaces of its own, joins by its bootstrap token. At the end nothing is left. The exit status is 0 only if all of this
# happened. All files are in a temporary folder. KEEP=1 keeps it. A cluster that was up before stays up.
#
# RAMUS is the path of a built binary. It needs root, and the image ramus/task:latest of Docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. scripts/stage.sh
cluster=$PWD/scripts/cluster.sh
[ "$(id -u)" = 0 ] || { echo "demo-cluster: only root can start the cluster" >&2; exit 1; }
docker image inspect ramus/task:latest >/dev/null 2>&1 || { echo "demo-cluster: the image ramus/task is missing (make image)" >&2; exit 1; }
stage cluster
chmod 755 "$work"
export IMAGES=task CLOUD=10.200.77.2:7090 HELM_CACHE_HOME=$work/helm
release=demo-$$
pods=$release-pods
keep_cluster=
! "$cluster" status || keep_cluster=1

kube() { "$cluster" kubectl "$@"; }
in_pod() { kube exec -i -n "$release" "$@"; }
# r runs ramus as a person at another machine does.
r() { "$cluster" in env HOME="$work" RAMUS_URL="http://$service" RAMUS_TOKEN="$token" RAMUS_DATA="$work/none" "$ramus" "$@"; }
at_git() { "$cluster" in env HOME="$work" GIT_TERMINAL_PROMPT=0 git -c "http.extraHeader=Authorization: Bearer $token" "$@"; }

pusher=
finish() {
    local status=$? machine
    trap - EXIT
    set +e
    [ -z "$pusher" ] || kill "$pusher" 2>/dev/null
    if [ "$status" != 0 ]; then
        kube get pods -A -o wide | tail -n 40 >&2
        kube logs -n "$release" ramus-0 --tail 15 >&2
    fi
    for machine in "$work"/machines/node-*; do
        [ ! -d "$machine" ] || "$cluster" leave "${machine##*/}"
        [ ! -d "$machine" ] || kube delete node "${machine##*/}" --ignore-not-found >/dev/null
    done
    if [ -z "$keep_cluster" ]; then
        "$cluster" down
    else
        kube uncordon node1
        "$cluster" helm uninstall ramus --namespace "$release"
        kube delete namespace "$release" "$pods" --ignore-not-found --wait=false
        kube delete pv "$release-0" "$release-1" --ignore-not-found --wait=false
    fi >/dev/null 2>&1
    strike
    exit "$status"
}
trap finish EXIT

"$cluster" build
began=$SECONDS

say "a cluster: API server, scheduler, kubelet and containerd, in namespaces of their own"
"$cluster" up
"$cluster" server "$ramus"
"$cluster" volumes "$release-0" "$release-1"
kube get nodes
echo "[$((SECONDS - began)) s]"

say "the chart makes two replicas of ramus"
mkdir -p "$work/served/amd64" "$work/served/arm64" "$work/programs" "$work/machines"
cp "$(dirname "$("$cluster" in sh -c 'echo $KUBECONFIG')")/../bin/kubelet" "$work/served/$(go env GOARCH)/kubelet"
go build -trimpath -o "$work/hetzner-standin" ./internal/standin/hetzner-standin
cat >"$work/values.yaml" <<YAML
image: {repository: docker.io/ramus/server, tag: latest}
taskImage: ramus/task:latest
config: {pool: 0, url: http://ramus.example}
replicas: {count: 2, secret: replicas}
containers: {namespace: $pods}
persistence: {size: 1Gi}
resources: {requests: {cpu: 50m, memory: 128Mi}}
nodes:
  provider: hetzner
  tokenSecret: cloud
  programs: {hostPath: {path: $work/served}}
  config: {server: "https://10.200.77.2:6443", endpoint: "http://$CLOUD", idle_after: 5s, most: 1}
YAML
kube create namespace "$release" >/dev/null
kube create secret generic replicas -n "$release" --from-literal=secret="$(openssl rand -hex 32)" >/dev/null
export HCLOUD_TOKEN
HCLOUD_TOKEN=$(openssl rand -hex 32)
kube create secret generic cloud -n "$release" --from-literal=token="$HCLOUD_TOKEN" >/dev/null
"$cluster" helm install ramus deploy/helm/ramus --namespace "$release" --values "$work/values.yaml" --wait --timeout 4m | sed -n 1,4p
service=$(kube get service ramus -n "$release" -o 'jsonpath={.spec.clusterIP}')
token=$(in_pod ramus-0 -- ramus token create --subject ada --repo '*' --scope admin)
kube get pods -n "$release"
r replica list
echo "[$((SECONDS - began)) s]"

say "a repository is imported, and a workflow works on it"
export GIT_CONFIG_GLOBAL=$work/gitconfig
git config --global user.name Ada
git config --global user.email ada@localhost
git init -q -b main "$work/app"
printf 'echo "built from $(git rev-parse --short HEAD)" >build.txt\n' >"$work/app/build.sh"
git -C "$work/app" add -A
git -C "$work/app" commit -qm "Build"
git -C "$work/app" fast-export main | in_pod ramus-0 -- sh -c 'git init -q --bare -b main /tmp/app.git && git -C /tmp/app.git fast-import --quiet'
in_pod ramus-0 -- ramus repo import app /tmp/app.git
in_pod ramus-0 -- ramus repo import site /tmp/app.git
cat >"$work/flow.yaml" <<'YAML'
id: release
repo: {id: app}
nodes:
  - id: build
    run: sh build.sh
  - id: test
    run: grep built build.txt
YAML
r run "$work/flow.yaml" || missed "a complete workflow"
echo "[$((SECONDS - began)) s]"

say "20 callers work at once, each in a pod of its own"
callers=$(seq -f 'caller-%02g' 20)
jobs=()
for caller in $callers; do
    r exec "$caller" --repo app -- "echo $caller >who; sleep 2; cat who" >"$work/$caller.out" 2>&1 &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || missed "20 commands: $(cat "$work"/caller-*.out)"; done
for caller in $callers; do grep -qx "$caller" "$work/$caller.out" || missed "the output of $caller"; done
running=$(kube get pods -n "$pods" -o name | wc -l)
echo "20 commands were answered, from $running pods"
[ "$running" -ge 20 ] || missed "20 pods"
for caller in $callers; do r rm "$caller" >/dev/null & done
wait $(jobs -p | grep -v "^${server:-none}\$")
echo "[$((SECONDS - began)) s]"

say "the kubelet of the node is killed in the middle of a command"
r exec mallard --repo app -- 'for i in $(seq 100); do echo line $i; sleep 0.1; done' >"$work/mallard.out" &
job=$!
until [ -s "$work/mallard.out" ]; do sleep 0.1; done
sleep 1
"$cluster" kill kubelet
echo "killed after $(wc -l <"$work/mallard.out") lines"
wait $job || missed "the command after the death of the kubelet"
cmp "$work/mallard.out" <(seq -f 'line %g' 100) || missed "each line once"
echo "each of its 100 lines came once"
echo "[$((SECONDS - began)) s]"

say "the repository moves to the other replica while somebody pushes"
at_git clone -q "http://$service/app.git" "$work/clone"
# push_on pushes a commit after the other, and lists those that were acknowledged.
push_on() {
    local n
    for n in $(seq 1000); do
        git -C "$work/clone" commit -q --allow-empty -m "push $n"
        until at_git -C "$work/clone" push -q origin main 2>>"$work/push.log"; do sleep 0.2; done
        git -C "$work/clone" rev-parse HEAD >>"$work/acknowledged"
    done
}
acknowledged() { wc -l <"$work/acknowledged"; }
more() { [ "$(acknowledged)" -ge "$1" ]; }
: >"$work/acknowledged"
push_on &
pusher=$!
until_ok 60 more 3
r repo move app --to ramus-1
before=$(acknowledged)
until_ok 60 more $((before + 3))
echo "$(acknowledged) pushes were acknowledged so far"
echo "[$((SECONDS - began)) s]"

say "its replica is killed, while a command runs there"
r exec heron --repo app --key once -- 'for i in $(seq 50); do echo line $i >>lines; sleep 0.1; done' >/dev/null 2>&1 &
job=$!
until r ps 2>/dev/null | grep heron >/dev/null; do sleep 0.2; done
sleep 1
victim=$(for p in /proc/[0-9]*; do
    # Only process 1 of a container has a root of its own, and the variable of the replica.
    if grep -qsz '^RAMUS_REPLICAS_NAME=ramus-1$' "$p/environ" && grep -qs ramus-cluster "$p/cgroup" && grep -qsz '^serve$' "$p/cmdline"; then echo "${p#/proc/}"; fi
done | sort -n | head -n 1)
[ -n "$victim" ] || missed "the process of ramus-1"
kill -9 "$victim"
before=$(acknowledged)
killed=$SECONDS
until_ok 60 more $((before + 1))
echo "the next push was acknowledged after $((SECONDS - killed)) s"
wait $job || true
until_ok 60 r exec heron --key once -- true
until_ok 60 more $((before + 5))
kill "$pusher" 2>/dev/null || true
wait "$pusher" 2>/dev/null || true
pusher=
at_git clone -q "http://$service/app.git" "$work/after"
while read -r commit; do
    git -C "$work/after" merge-base --is-ancestor "$commit" origin/main || missed "the push of $commit, which was acknowledged"
done <"$work/acknowledged"
echo "$(acknowledged) pushes were acknowledged, and none is lost"
r exec heron -- cat lines >"$work/heron.out"
cmp "$work/heron.out" <(seq -f 'line %g' 50) || missed "each step of the command once"
echo "the command ran once, to its end"
kube get pods -n "$release"
echo "[$((SECONDS - began)) s]"

say "no node has room, so ramus orders a machine, and its kubelet joins by a token that is good once"
cat >"$work/programs/systemctl" <<SH
#!/bin/sh
case \$* in
*ramus-kubelet*)
    cd "\$MACHINE"
    KUBELET=\$PWD/usr/local/bin/kubelet exec "$cluster" join "\$NODE" "\$PWD/etc/ramus/bootstrap.kubeconfig" demo=machine
    ;;
esac
SH
cat >"$work/power" <<SH
#!/bin/sh
# power on|off NODE FOLDER
export NODE=\$2 MACHINE=\$3
case \$1 in
on) PATH=$work/programs:\$PATH setsid sh "\$3/usr/local/lib/ramus/bootstrap" >"\$3/boot.log" 2>&1 </dev/null & ;;
off) "$cluster" leave "\$2" >/dev/null 2>&1 ;;
esac
SH
chmod 755 "$work/programs/systemctl" "$work/power"
"$cluster" in "$work/hetzner-standin" -listen "$CLOUD" -dir "$work/machines" -url "http://$service" -power "$work/power" >"$work/cloud.log" 2>&1 &
standins="$standins $!"
kube cordon node1
r exec swan --repo site --keep -- 'echo done at last' >"$work/swan.out" 2>&1 &
job=$!
wait $job || { cat "$work/swan.out" "$work"/machines/*/boot.log "$work/cloud.log" >&2; missed "the command on the new node"; }
grep -x 'done at last' "$work/swan.out" || missed "the output of swan"
node=$(basename "$work"/machines/node-*)
kube get nodes
[ "$(kube get pods -n "$pods" -l ramus.dev/container=task -o 'jsonpath={.items[*].spec.nodeName}' | tr ' ' '\n' | grep -cx "$node")" -ge 1 ] || missed "a pod on $node"
r node events "$node"
kube uncordon node1 >/dev/null
r rm swan
gone() { [ ! -d "$work/machines/$node" ] || ! kube get node "$node"; }
until_ok 90 gone
until_ok 60 grep -q "$node is off" "$work/cloud.log"
echo "the machine is removed when it is idle"
echo "[$((SECONDS - began)) s]"

say "nothing is left"
for caller in mallard heron; do r rm "$caller" >/dev/null || true; done
empty() { [ -z "$(kube get pods -n "$pods" -o name)" ]; }
until_ok 60 empty
"$cluster" helm uninstall ramus --namespace "$release" --wait --timeout 3m
# nothing succeeds if neither the namespaces of the release nor the names of the cluster have a part of it.
nothing() {
    local left of=app.kubernetes.io/instance=ramus
    left=$(
        kube get all,roles,rolebindings,configmaps -n "$release" -l $of -o name 2>/dev/null
        { kube get clusterroles,clusterrolebindings,namespaces -l $of -o name; kube get roles,rolebindings -A -l $of -o name; } | grep "$release"
    )
    [ -z "$left" ]
}
until_ok 60 nothing
kube get pvc -n "$release"
echo "no pod, no machine and no object but the volumes"

printf '\n== done in %s s: all of it happened\n' "$((SECONDS - began))"
