#!/usr/bin/env bash
# Runs a Kubernetes cluster of one node for tests and developers, in network, mount and process namespaces of its own.
#
#   scripts/cluster.sh up            builds the missing parts, starts the cluster, and returns when its node is ready
#   scripts/cluster.sh down          ends it; nothing is left but the folder with the programs
#   scripts/cluster.sh down --forget ends it, and removes its images, certificates and logs too
#   scripts/cluster.sh build         builds the programs alone: minutes once, nothing afterwards
#   scripts/cluster.sh images        puts the image of the runner, and ramus/task:latest and ramus/browser:latest of Docker into the node
#   scripts/cluster.sh load < TAR    puts the images of a `docker save` into the node
#   scripts/cluster.sh server RAMUS  puts the image of a release, with the program RAMUS, into the node as ramus/server:latest
#   scripts/cluster.sh volumes NAME… makes volumes of 5 GiB on the node, for claims of any class
#   scripts/cluster.sh in COMMAND…   runs a command in the network of the cluster, with KUBECONFIG
#   scripts/cluster.sh kill PROGRAM  kills etcd, apiserver, controller-manager, scheduler, containerd or kubelet; it comes back
#   scripts/cluster.sh join NAME BOOTSTRAP [LABELS]
#                                    starts a second node, whose kubelet has the kubeconfig BOOTSTRAP; KUBELET is another kubelet
#   scripts/cluster.sh leave NAME    ends that node; its Node stays
#   scripts/cluster.sh status        exits with 0 if the cluster is up
#   scripts/cluster.sh kubectl …     runs kubectl, which it builds first
#   scripts/cluster.sh helm …        runs helm in the network of the cluster, in the folder of this checkout; it builds helm first
#
# IMAGES names the images of Docker that are put into a node (task browser). CLUSTER is the folder of everything (~/.cache/ramus/cluster). Programs come from the Go proxy in exact versions. The build needs
# 12 GB of disk for some minutes, the programs 0.6 GB. KEEP_BUILD=1 keeps modules and objects for the next version.
set -euo pipefail
umask 022 # users of pods must reach the folders of containerd

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CLUSTER=${CLUSTER:-${XDG_CACHE_HOME:-$HOME/.cache}/ramus/cluster}
BIN=$CLUSTER/bin BUILD=$CLUSTER/build STATE=$CLUSTER/state LOG=$CLUSTER/log PKI=$CLUSTER/pki RUN=$CLUSTER/run

KUBERNETES=1.34.1 ETCD=v3.6.5 CONTAINERD=v2.1.4 RUNC=v1.3.3 CNI=v1.8.0 COREDNS=v1.13.1

# The node's address is on the loopback of the cluster's own network namespace, which has no way out.
NODE=${NODE:-node1} NODE_IP=10.200.77.2 POD_NET=10.201.0.0/24 SERVICE_NET=10.202.0.0/24 SERVICE_IP=10.202.0.1
API=https://$NODE_IP:6443
SOCKET=/run/containerd/containerd.sock
# Clusters of other folders have other control groups, because the end of a cluster removes its group.
GROUP=ramus-cluster-$(realpath -m "$CLUSTER" | cksum | cut -d' ' -f1)

say() { echo "cluster: $*" >&2; }
die() {
    say "$@"
    exit 1
}

# need PROGRAM PACKAGE
need() {
    command -v "$1" >/dev/null || die "cannot go on: the program $1 is missing (apt-get install $2)"
}

# alive reports whether process 1 of the namespaces runs. After a restart of the machine its number may be another process's.
alive() { [ -s "$RUN/init" ] && grep -qs inside_main "/proc/$(cat "$RUN/init")/cmdline"; }

# inside runs a command in the namespaces of the cluster's programs. INIT is process 1 of a second node.
inside() { nsenter -t "${INIT:-$(cat "$RUN/init")}" -m -n -p "$@"; }

# ask METHOD PATH [JSON] asks the API server as its administrator.
ask() {
    nsenter -t "$(cat "$RUN/init")" -n curl -sS --fail-with-body --max-time 10 --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" \
        --key "$PKI/admin.key" -X "$1" -H 'Content-Type: application/json' ${3:+-d "$3"} "$API$2"
}

# --- build ---

# module DIR FILE-OF-GO.MOD PACKAGE… makes a module that needs the packages, once.
module() {
    local dir=$1 mod=$2
    shift 2
    mkdir -p "$dir"
    printf '%s\n' "$mod" >"$dir/go.mod"
    {
        printf '//go:build tools\n\npackage tools\n\nimport (\n'
        printf '\t_ "%s"\n' "$@"
        printf ')\n'
    } >"$dir/tools.go"
    (cd "$dir" && go mod tidy -e >"$LOG/tidy.log" 2>&1) ||
        die "cannot resolve the modules of $*: see $LOG/tidy.log (is the Go proxy reached? go env GOPROXY)"
}

# program NAME VERSION DIR PACKAGE LDFLAGS [go build flags…] builds a program, unless that version is there.
program() {
    local name=$1 version=$2 dir=$3 package=$4 ldflags=$5 began=$SECONDS
    shift 5
    [ "$(cat "$BIN/$name.version" 2>/dev/null)" != "$version" ] || return 0
    say "building $name $version"
    (cd "$dir" && nice go build -trimpath -buildvcs=false -ldflags "-s -w $ldflags" "$@" -o "$BIN/$name.new" "$package") \
        >"$LOG/build-$name.log" 2>&1 || die "cannot build $name: see $LOG/build-$name.log (12 GB of disk are needed in $CLUSTER)"
    mv "$BIN/$name.new" "$BIN/$name"
    echo "$version" >"$BIN/$name.version"
    say "built $name in $((SECONDS - began)) s"
}

missing() {
    local entry
    for entry in "$@"; do
        [ "$(cat "$BIN/${entry%=*}.version" 2>/dev/null)" = "${entry#*=}" ] || return 0
    done
    return 1
}

kubernetes_module() {
    local mod m
    mod=$(
        printf 'module cluster\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' $KUBERNETES
        for m in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap \
            code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib \
            dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy \
            kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin \
            sample-controller; do
            printf '\tk8s.io/%s => k8s.io/%s v0.%s\n' $m $m ${KUBERNETES#1.}
        done
        printf ')\n'
    )
    # CoreDNS is in the same module, so that the client of Kubernetes is compiled once. It has the plugins that the cluster needs.
    mkdir -p "$BUILD/kubernetes/coredns"
    cat >"$BUILD/kubernetes/coredns/main.go" <<'G'
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
G
    mod+=$(printf '\nrequire github.com/coredns/coredns %s\n' $COREDNS)
    module "$BUILD/kubernetes" "$mod" k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy,kubelet,kubectl}
}

kubernetes_program() {
    local v=v$KUBERNETES minor
    minor=$(echo $KUBERNETES | cut -d. -f2)
    CGO_ENABLED=0 program "$1" $v "$BUILD/kubernetes" "k8s.io/kubernetes/cmd/$1" "-X k8s.io/component-base/version.gitVersion=$v \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor -X k8s.io/client-go/pkg/version.gitVersion=$v"
}

# seccomp_headers prints the flags of the C compiler for libseccomp, which runc needs.
seccomp_headers() {
    if [ ! -e /usr/include/seccomp.h ] && [ ! -e "$BUILD/seccomp/usr/include/seccomp.h" ]; then
        mkdir -p "$BUILD/seccomp"
        (cd "$BUILD/seccomp" && apt-get download libseccomp-dev libseccomp2 >"$LOG/seccomp.log" 2>&1 &&
            for f in *.deb; do dpkg-deb -x "$f" .; done) ||
            die "cannot build runc: the headers of libseccomp are missing (apt-get update, then apt-get install libseccomp-dev)"
    fi
}

# build runs in a shell of its own, because it sets the environment of the go command.
build() (
    need go golang
    mkdir -p "$BIN" "$LOG"
    missing kube-apiserver=v$KUBERNETES kube-controller-manager=v$KUBERNETES kube-scheduler=v$KUBERNETES kubelet=v$KUBERNETES \
        kube-proxy=v$KUBERNETES coredns=$COREDNS etcd=$ETCD containerd=$CONTAINERD containerd-shim-runc-v2=$CONTAINERD ctr=$CONTAINERD runc=$RUNC ptp=$CNI \
        host-local=$CNI loopback=$CNI || return 0
    need gcc gcc
    need pkg-config pkg-config
    mkdir -p "$BUILD"
    # Their modules and objects are many times those of ramus.
    export GOFLAGS=-mod=mod GOMODCACHE=$BUILD/mod GOCACHE=$BUILD/cache GOWORK=off
    if missing kube-apiserver=v$KUBERNETES kube-controller-manager=v$KUBERNETES kube-scheduler=v$KUBERNETES kubelet=v$KUBERNETES \
        kube-proxy=v$KUBERNETES coredns=$COREDNS; then
        kubernetes_module
        for p in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do kubernetes_program $p; done
        CGO_ENABLED=0 program coredns $COREDNS "$BUILD/kubernetes" ./coredns ""
    fi

    module "$BUILD/etcd" "$(printf 'module cluster\n\ngo 1.24.0\n\nrequire go.etcd.io/etcd/server/v3 %s\n' $ETCD)" go.etcd.io/etcd/server/v3
    CGO_ENABLED=0 program etcd $ETCD "$BUILD/etcd" go.etcd.io/etcd/server/v3 ""

    local c=github.com/containerd/containerd/v2
    module "$BUILD/containerd" "$(printf 'module cluster\n\ngo 1.24.0\n\nrequire %s %s\n' $c $CONTAINERD)" \
        $c/cmd/{containerd,containerd-shim-runc-v2,ctr}
    for p in containerd containerd-shim-runc-v2 ctr; do
        CGO_ENABLED=0 program $p $CONTAINERD "$BUILD/containerd" $c/cmd/$p "-X $c/version.Version=${CONTAINERD#v}" -tags 'no_btrfs no_devmapper no_zfs'
    done

    local n=github.com/containernetworking/plugins
    module "$BUILD/cni" "$(printf 'module cluster\n\ngo 1.24.0\n\nrequire %s %s\n' $n $CNI)" \
        $n/plugins/main/{ptp,loopback} $n/plugins/ipam/host-local
    CGO_ENABLED=0 program ptp $CNI "$BUILD/cni" $n/plugins/main/ptp ""
    CGO_ENABLED=0 program loopback $CNI "$BUILD/cni" $n/plugins/main/loopback ""
    CGO_ENABLED=0 program host-local $CNI "$BUILD/cni" $n/plugins/ipam/host-local ""

    seccomp_headers
    module "$BUILD/runc" "$(printf 'module cluster\n\ngo 1.24.0\n\nrequire github.com/opencontainers/runc %s\n' $RUNC)" github.com/opencontainers/runc
    local s=$BUILD/seccomp/usr lib
    lib=$(gcc -print-multiarch)
    CGO_ENABLED=1 CGO_CFLAGS="-I$s/include" CGO_LDFLAGS="-L$s/lib/$lib" PKG_CONFIG_PATH=$s/lib/$lib/pkgconfig \
        program runc $RUNC "$BUILD/runc" github.com/opencontainers/runc "-X main.version=${RUNC#v} -extldflags -static" \
        -tags "seccomp netgo osusergo"
    if [ -z "${KEEP_BUILD:-}" ]; then
        go clean -modcache
        rm -rf "$BUILD"
    fi
)

# --- certificates ---

certificate() { # NAME SUBJECT USAGE [NAMES]
    openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
    openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
    {
        echo "keyUsage=critical,digitalSignature"
        echo "extendedKeyUsage=$3"
        [ -z "${4:-}" ] || echo "subjectAltName=$4"
    } >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile "$1.ext" -out "$1.crt"
    rm "$1.csr" "$1.ext"
}

# kubeconfig CREDENTIAL prints a configuration of clients; CREDENTIAL is the YAML of a user.
kubeconfig() {
    cat <<Y
apiVersion: v1
kind: Config
clusters: [{name: ramus-cluster, cluster: {server: "$API", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}}]
users: [{name: user, user: {$1}}]
contexts: [{name: ramus-cluster, context: {cluster: ramus-cluster, user: user}}]
current-context: ramus-cluster
Y
}

certificates() {
    [ ! -e "$PKI/done" ] || return 0
    rm -rf "$PKI"
    (
        umask 077
        mkdir -p "$PKI"
        cd "$PKI"
        {
            openssl ecparam -name prime256v1 -genkey -noout -out ca.key
            openssl req -x509 -new -key ca.key -subj /CN=ramus-cluster -days 3650 -out ca.crt \
                -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
            certificate apiserver /CN=kube-apiserver serverAuth \
                "IP:127.0.0.1,IP:$NODE_IP,IP:$SERVICE_IP,DNS:localhost,DNS:kubernetes.default.svc"
            certificate admin /O=system:masters/CN=admin clientAuth
            certificate kubelet-client /O=system:masters/CN=apiserver-kubelet-client clientAuth
            certificate controller-manager /CN=system:kube-controller-manager clientAuth
            certificate scheduler /CN=system:kube-scheduler clientAuth
            openssl genrsa -out sa.key 2048
            openssl rsa -in sa.key -pubout -out sa.pub
        } >"$LOG/pki.log" 2>&1
        for u in admin controller-manager scheduler; do
            kubeconfig "client-certificate-data: $(base64 -w0 $u.crt), client-key-data: $(base64 -w0 $u.key)" >$u.kubeconfig
        done
        touch done
    ) || die "cannot make the certificates: see $LOG/pki.log (is openssl 1.1.1 or later there?)"
}

# --- images ---

# image NAME ENTRYPOINT FILE… writes an image of one layer, with the files at /, as `docker save` does.
image() {
    local name=$1 entry=$2 d sum arch
    shift 2
    d=$(mktemp -d)
    mkdir "$d/root" "$d/root/"{proc,sys,dev,etc,run,tmp}
    cp "$@" "$d/root/"
    tar -C "$d/root" --owner=0 --group=0 --mtime=@0 --sort=name -cf "$d/layer.tar" .
    sum=$(sha256sum "$d/layer.tar" | cut -d' ' -f1)
    arch=$(go env GOARCH)
    printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created_by":"ramus"}]}' \
        "$arch" "$entry" "$sum" >"$d/config.json"
    printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" >"$d/manifest.json"
    tar -C "$d" -cf - manifest.json config.json layer.tar
    rm -rf "$d"
}

# runner builds ramus-runner, which is the program of the image that holds the namespaces of a pod as well.
runner() {
    (cd "$here" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$STATE/ramus-runner" ./cmd/ramus-runner) ||
        die "cannot build ramus-runner: go build ./cmd/ramus-runner says why"
}

load() {
    alive || die "it is not up (make cluster)"
    inside "$BIN/ctr" -a $SOCKET -n k8s.io images import --local - >"$LOG/import.log" 2>&1 || die "cannot import an image: see $LOG/import.log"
}

images() {
    alive || die "it is not up (make cluster)"
    [ -n "${INIT:-}" ] || runner # a second node has that of the first
    image localhost/ramus/runner:dev '["/ramus-runner","way","hold"]' "$STATE/ramus-runner" | load
    local name
    for name in ${IMAGES:-task browser}; do
        if command -v docker >/dev/null && docker image inspect ramus/$name:latest >/dev/null 2>&1; then
            docker save ramus/$name:latest | load
        else
            say "Docker has no image ramus/$name:latest here, so the node has none (make image, make browser)"
        fi
    done
}

# server RAMUS puts the image of a release into the node.
server() {
    alive || die "it is not up (make cluster)"
    [ $# = 1 ] && [ -x "$1" ] || die "cannot make the image of a server: want the path of ramus (make build)"
    runner
    (cd "$here" && go run -trimpath ./internal/release image "$(realpath "$1")" "$STATE/ramus-runner" "$(go env GOARCH)" dev "$STATE/server.tar") ||
        die "cannot make the image of a server"
    load <"$STATE/server.tar" # which later nodes get as well
}

# volumes NAME… makes volumes that the kubelet gives to the group of a pod, as those of a cloud.
volumes() {
    local name
    for name in "$@"; do
        mkdir -p "$STATE/volumes/$name"
        ask POST /api/v1/persistentvolumes "{\"metadata\":{\"name\":\"$name\"},\"spec\":{\"capacity\":{\"storage\":\"5Gi\"},
            \"accessModes\":[\"ReadWriteOnce\"],\"local\":{\"path\":\"$STATE/volumes/$name\"},\"nodeAffinity\":{\"required\":{\"nodeSelectorTerms\":[
            {\"matchExpressions\":[{\"key\":\"kubernetes.io/hostname\",\"operator\":\"In\",\"values\":[\"$NODE\"]}]}]}}}}" >/dev/null ||
            die "cannot make the volume $name"
    done
}

# --- the programs, in the namespaces ---

# keep NAME COMMAND… runs a program, and starts it again when it ends.
keep() {
    local name=$1
    shift
    (
        while :; do
            "$@" >>"$LOG/$name.log" 2>&1 </dev/null &
            echo $! >"/run/cluster/$name.pid"
            wait $! || true
            sleep 0.2
        done
    ) &
}

# own_settings puts files in place of the settings of the kernel that the kubelet changes, because they are the whole machine's. Pods
# with users of their own may mount /proc only if some mount of it has nothing in its place.
own_settings() {
    local name
    mkdir -p /run/cluster/proc
    mount -t proc proc /run/cluster/proc
    for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        cat "/proc/sys/$name" >"/run/cluster/${name##*/}"
        mount --bind "/run/cluster/${name##*/}" "/proc/sys/$name"
    done
}

# inside_main is process 1 of the namespaces.
inside_main() {
    mount --make-rprivate /
    mount --make-rshared /
    mount -t tmpfs tmpfs /run # sockets of shims, names of network namespaces: none of the machine's
    mkdir -p /run/cluster /run/containerd "$STATE/var.upper" "$STATE/var.work"
    mount -t overlay overlay -o "lowerdir=/var,upperdir=$STATE/var.upper,workdir=$STATE/var.work" /var
    own_settings
    ip link set lo up
    ip addr add $NODE_IP/32 dev lo
    ip route add $SERVICE_NET dev lo src $NODE_IP # so that programs of the node reach services, which the proxy sends elsewhere
    echo 1 >/proc/sys/net/ipv4/ip_forward
    export PATH=$BIN:$PATH HOME=/root

    keep etcd etcd --data-dir "$STATE/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
    keep apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address=0.0.0.0 \
        --advertise-address=$NODE_IP --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
        --client-ca-file="$PKI/ca.crt" --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth \
        --allow-privileged=true --service-cluster-ip-range=$SERVICE_NET --kubelet-preferred-address-types=InternalIP \
        --kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
        --endpoint-reconciler-type=lease
    keep controller-manager kube-controller-manager --kubeconfig="$PKI/controller-manager.kubeconfig" \
        --authentication-kubeconfig="$PKI/controller-manager.kubeconfig" --authorization-kubeconfig="$PKI/controller-manager.kubeconfig" \
        --controllers='*,bootstrapsigner,tokencleaner' --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
        --root-ca-file="$PKI/ca.crt" --service-account-private-key-file="$PKI/sa.key" --use-service-account-credentials \
        --leader-elect=false --bind-address=127.0.0.1
    keep scheduler kube-scheduler --kubeconfig="$PKI/scheduler.kubeconfig" --authentication-kubeconfig="$PKI/scheduler.kubeconfig" \
        --authorization-kubeconfig="$PKI/scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1
    containerd_config >"$STATE/containerd.toml"
    mkdir -p "$STATE/cni"
    cni_config >"$STATE/cni/10-ramus.conflist"
    keep containerd containerd --config "$STATE/containerd.toml"
    kubelet_config >"$STATE/kubelet.yaml"
    # up writes the token of the kubelet when the API server answers.
    while [ ! -s "$RUN/bootstrap.kubeconfig" ] && [ ! -s "$STATE/kubelet.kubeconfig" ]; do sleep 0.1; done
    keep kubelet kubelet --config "$STATE/kubelet.yaml" --root-dir "$STATE/kubelet" --hostname-override $NODE --node-ip $NODE_IP \
        --cert-dir "$STATE/kubelet-pki" --bootstrap-kubeconfig "$RUN/bootstrap.kubeconfig" --kubeconfig "$STATE/kubelet.kubeconfig"
    # Second nodes are in the same network, so one proxy serves all. Zeroes keep the machine's settings of connection tracking.
    keep kube-proxy kube-proxy --kubeconfig "$PKI/admin.kubeconfig" --proxy-mode iptables --hostname-override $NODE \
        --cluster-cidr 10.201.0.0/16 --bind-address $NODE_IP --metrics-bind-address 127.0.0.1:10249 --conntrack-max-per-core 0 \
        --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0
    names_config >"$STATE/Corefile"
    keep coredns coredns -conf "$STATE/Corefile"
    wait
}

# names_config prints the configuration of CoreDNS, which answers for names of services alone.
names_config() {
    cat <<T
.:53 {
    bind $NODE_IP
    errors
    kubernetes cluster.local {
        kubeconfig $PKI/admin.kubeconfig
        ttl 1
    }
}
T
}

# --- a second node ---

# begun NAME reports whether process 1 of a second node runs.
begun() { [ -s "$RUN/$1.pid" ] && grep -qs node_main "/proc/$(cat "$RUN/$1.pid")/cmdline"; }

# join starts a node in mount and process namespaces of its own, in the network of the cluster. Its process 1 is told by the pid that it has
# outside.
join() {
    alive || die "it is not up (make cluster)"
    [ $# -ge 2 ] && [ -s "$2" ] || die "cannot join: want NAME BOOTSTRAP [LABELS], and BOOTSTRAP is a kubeconfig"
    local name=$1
    ! begun "$name" || die "the node $name runs already"
    mkdir -p "$STATE/$name"
    cp "$2" "$STATE/$name/bootstrap.kubeconfig"
    setsid nsenter -t "$(cat "$RUN/init")" -m -n -p unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
        "$here/scripts/cluster.sh" node_main "$name" "${3:-}" >"$LOG/$name.log" 2>&1 </dev/null &
    local outer=$!
    for _ in $(seq 100); do
        child "$(child $outer)" >"$RUN/$name.pid" # of nsenter's child unshare
        begun "$name" && break
        sleep 0.1
    done
    begun "$name" || die "cannot start the node $name: see $LOG/$name.log"
    export INIT
    INIT=$(cat "$RUN/$name.pid")
    await 60 "containerd of $name does not answer" inside "$BIN/ctr" -a $SOCKET version
    load <"$STATE/pause.tar"
    images
    [ ! -e "$STATE/server.tar" ] || load <"$STATE/server.tar"
    touch "$STATE/$name/loaded"
}

# child PID prints the only child of a process.
child() { [ ! -e "/proc/$1/task/$1/children" ] || tr -d ' ' <"/proc/$1/task/$1/children" || true; }

leave() {
    [ $# = 1 ] || die "cannot end a node: want NAME"
    local h pid
    pid=$(cat "$RUN/$1.pid" 2>/dev/null || true)
    if begun "$1"; then
        kill -9 "$pid"
        for _ in $(seq 100); do
            begun "$1" || break
            sleep 0.1
        done
    fi
    GROUP=$GROUP/$1 remove_groups
    ! alive || inside ip addr del "$(second_ip "$1")/32" dev lo 2>/dev/null || true
    rm -rf "$STATE/$1" "$RUN/$1.pid"
}

# second_ip NAME prints an address of a second node. Two names have the same one in one of 250 cases.
second_ip() { echo "10.200.77.$((3 + $(printf %s "$1" | cksum | cut -d' ' -f1) % 250))"; }

# node_main NAME LABELS is process 1 of a second node.
node_main() {
    local name=$1 ip number
    ip=$(second_ip "$name")
    number=${ip##*.}
    mount --make-rprivate /
    mount --make-rshared /
    mount -t tmpfs tmpfs /run
    mkdir -p /run/cluster /run/containerd /var/lib/kubelet /var/lib/cni
    mount -t tmpfs tmpfs /var/lib/kubelet
    mount -t tmpfs tmpfs /var/lib/cni
    own_settings
    ip addr add "$ip/32" dev lo 2>/dev/null || true
    export PATH=$BIN:$PATH HOME=/root
    GROUP=$GROUP/$name POD_NET=10.201.$number.0/24
    make_groups
    STATE=$STATE/$name
    containerd_config >"$STATE/containerd.toml"
    mkdir -p "$STATE/cni"
    cni_config >"$STATE/cni/10-ramus.conflist"
    LOG=$LOG/$name.d
    mkdir -p "$LOG"
    keep containerd containerd --config "$STATE/containerd.toml"
    # join puts the images into containerd from outside, where Docker is.
    until [ -e "$STATE/loaded" ]; do sleep 0.1; done
    # The ports of the first kubelet are taken.
    { kubelet_config && printf 'port: 10%03d\nhealthzPort: 0\n' "$((300 + number))"; } >"$STATE/kubelet.yaml"
    keep kubelet "${KUBELET:-kubelet}" --config "$STATE/kubelet.yaml" --root-dir "$STATE/kubelet" --hostname-override "$name" --node-ip "$ip" \
        --node-labels "$2" --cert-dir "$STATE/kubelet-pki" --bootstrap-kubeconfig "$STATE/bootstrap.kubeconfig" \
        --kubeconfig "$STATE/kubelet.kubeconfig"
    wait
}

cni_config() {
    cat <<T
{"cniVersion": "0.4.0", "name": "ramus", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local",
  "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": "$POD_NET"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
T
}

containerd_config() {
    cat <<T
version = 2
root = "$STATE/containerd"
state = "/run/containerd/state"
oom_score = 0
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/ramus/pause:dev"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE a machine may not lower the score, and runc says "cannot get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "$BIN/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$BIN"
    conf_dir = "$STATE/cni"
T
}

kubelet_config() {
    cat <<T
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$SOCKET
cgroupDriver: cgroupfs
cgroupRoot: /$GROUP
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
podLogsDir: $STATE/pod-logs
rotateCertificates: true
seccompDefault: true
singleProcessOOMKill: $(if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo true; else echo null; fi)
podPidsLimit: 1024
resolvConf: ""
clusterDNS: [$NODE_IP]
clusterDomain: cluster.local
evictionHard: {memory.available: 200Mi, nodefs.available: 2%, imagefs.available: 2%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
# The defaults are too small for many pods that start at once.
kubeAPIQPS: 50
kubeAPIBurst: 100
T
}

# --- up and down ---

# groups prints the roots of the hierarchies of control groups.
groups() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        echo /sys/fs/cgroup
    else
        for h in /sys/fs/cgroup/*/; do [ ! -e "$h/cgroup.procs" ] || [ -L "${h%/}" ] || echo "${h%/}"; done
    fi
}

make_groups() {
    local h
    for h in $(groups); do
        mkdir -p "$h/$GROUP" || die "cannot make a control group in $h: it is read-only (the cluster needs a privileged machine)"
        if [ -e "$h/cpuset.cpus" ]; then
            cat "$h/cpuset.cpus" >"$h/$GROUP/cpuset.cpus"
            cat "$h/cpuset.mems" >"$h/$GROUP/cpuset.mems"
        fi
        if [ -e "$h/cgroup.subtree_control" ]; then
            sed 's/\([a-z]\+\)/+\1/g' "$h/cgroup.controllers" >"$h/cgroup.subtree_control" || true
        fi
    done
}

# token prints the configuration of a client that may ask for the certificate of a node within the next minutes.
token() {
    local id secret until
    id=$(openssl rand -hex 3)
    secret=$(openssl rand -hex 8)
    until=$(date -u -d '+300 seconds' +%Y-%m-%dT%H:%M:%SZ)
    ask POST /api/v1/namespaces/kube-system/secrets "{\"type\":\"bootstrap.kubernetes.io/token\",
        \"metadata\":{\"name\":\"bootstrap-token-$id\"},\"stringData\":{\"token-id\":\"$id\",\"token-secret\":\"$secret\",
        \"expiration\":\"$until\",\"usage-bootstrap-authentication\":\"true\",\"auth-extra-groups\":\"system:bootstrappers:ramus\"}}" >/dev/null
    kubeconfig "token: $id.$secret"
}

# binding NAME ROLE GROUP gives a role of the cluster to a group.
binding() {
    ask GET "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/$1" >/dev/null 2>&1 ||
        ask POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings "{\"metadata\":{\"name\":\"$1\"},
            \"roleRef\":{\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\"name\":\"$2\"},
            \"subjects\":[{\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Group\",\"name\":\"$3\"}]}" >/dev/null
}

# await SECONDS WHAT COMMAND… waits until a command succeeds.
await() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        alive || die "it ended at its start: see $LOG/inside.log"
        [ $SECONDS -lt $until ] || die "$what: see the logs in $LOG (scripts/cluster.sh down, then up again)"
        sleep 0.2
    done
}

node_ready() { ask GET "/api/v1/nodes/$NODE" | tr -d ' \n' | grep '"type":"Ready","status":"True"' >/dev/null; }

up() {
    [ "$(id -u)" = 0 ] || die "cannot start: it makes namespaces, mounts and control groups (run it as root)"
    need nsenter util-linux
    need unshare util-linux
    need ip iproute2
    need openssl openssl
    need curl curl
    build
    if alive; then
        say "it is up (scripts/cluster.sh in COMMAND…)"
        return
    fi
    down # what a cluster left that was killed
    mkdir -p "$STATE" "$RUN" "$LOG"
    certificates
    make_groups
    runner
    image localhost/ramus/pause:dev '["/ramus-runner","way","hold"]' "$STATE/ramus-runner" >"$STATE/pause.tar"
    setsid unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc "$here/scripts/cluster.sh" inside_main \
        >"$LOG/inside.log" 2>&1 </dev/null &
    local outer=$! init=
    for _ in $(seq 100); do
        init=$(child $outer) && [ -n "$init" ] && break
        sleep 0.1
    done
    [ -n "$init" ] || die "cannot make namespaces: see $LOG/inside.log (the machine must allow unshare --mount --net --pid)"
    echo "$init" >"$RUN/init"
    await 120 "the API server does not answer" ask GET /readyz
    binding ramus-bootstrap system:node-bootstrapper system:bootstrappers:ramus
    binding ramus-approve system:certificates.k8s.io:certificatesigningrequests:nodeclient system:bootstrappers:ramus
    binding ramus-renew system:certificates.k8s.io:certificatesigningrequests:selfnodeclient system:nodes
    await 60 "containerd does not answer" inside "$BIN/ctr" -a $SOCKET version
    load <"$STATE/pause.tar"
    token >"$RUN/bootstrap.new"
    mv "$RUN/bootstrap.new" "$RUN/bootstrap.kubeconfig"
    await 120 "the node does not become ready" node_ready
    images
    say "it is up: scripts/cluster.sh in COMMAND…, scripts/cluster.sh kubectl get nodes"
}

# remove_groups removes the control groups of processes that have ended.
remove_groups() {
    local h
    for h in $(groups); do
        for _ in $(seq 100); do
            [ -d "$h/$GROUP" ] || break
            find "$h/$GROUP" -depth -type d -exec rmdir {} + 2>/dev/null || true
            [ ! -d "$h/$GROUP" ] || sleep 0.1
        done
        [ ! -d "$h/$GROUP" ] || die "cannot remove the control group $h/$GROUP: a process is left in it (cat $h/$GROUP/cgroup.procs)"
    done
}

down() {
    if alive; then
        kill -9 "$(cat "$RUN/init")" 2>/dev/null || true
        for _ in $(seq 200); do
            alive || break
            sleep 0.1
        done
        ! alive || die "cannot end process $(cat "$RUN/init"): a process of it hangs in the kernel (see /proc/*/stack)"
    fi
    remove_groups
    rm -rf "$STATE"/node-*
    # Objects are forgotten. Images stay, because they take longer to load than the cluster to start.
    rm -rf "$RUN" "$STATE/volumes" "$STATE/server.tar" "$STATE/etcd" "$STATE/kubelet" "$STATE/kubelet-pki" "$STATE/kubelet.kubeconfig" "$STATE/pod-logs" "$STATE/var.upper" \
        "$STATE/var.work"
    [ "${1:-}" != --forget ] || rm -rf "$STATE" "$PKI" "$LOG"
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
up | down | build | images | load | server | volumes | join | leave | inside_main | node_main) "$command" "$@" ;;
status) alive ;;
in)
    alive || die "it is not up (make cluster)"
    KUBECONFIG=$PKI/admin.kubeconfig exec nsenter -t "$(cat "$RUN/init")" -n -- "$@"
    ;;
kill)
    alive || die "it is not up (make cluster)"
    case ${1:-} in
    etcd | apiserver | controller-manager | scheduler | containerd | kubelet) ;;
    *) die "cannot kill ${1:-nothing}: it is none of etcd, apiserver, controller-manager, scheduler, containerd, kubelet" ;;
    esac
    inside sh -c 'kill -9 "$(cat "/run/cluster/$1.pid")"' sh "$1"
    ;;
kubectl)
    alive || die "it is not up (make cluster)"
    if missing kubectl=v$KUBERNETES; then
        mkdir -p "$BUILD"
        (export GOFLAGS=-mod=mod GOMODCACHE=$BUILD/mod GOCACHE=$BUILD/cache GOWORK=off && kubernetes_module && kubernetes_program kubectl)
    fi
    KUBECONFIG=$PKI/admin.kubeconfig exec nsenter -t "$(cat "$RUN/init")" -n -- "$BIN/kubectl" "$@"
    ;;
helm)
    alive || die "it is not up (make cluster)"
    helm=$(sed -n 's|^\thelm.sh/helm/v3 ||p' "$here/deploy/helm/go.mod")
    CGO_ENABLED=0 program helm "$helm" "$here/deploy/helm" helm.sh/helm/v3/cmd/helm ""
    cd "$here"
    KUBECONFIG=$PKI/admin.kubeconfig exec nsenter -t "$(cat "$RUN/init")" -n -- "$BIN/helm" "$@"
    ;;
*)
    sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed '/^set -/d; s/^# \{0,1\}//' >&2
    exit 2
    ;;
esac
