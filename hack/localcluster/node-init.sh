#!/bin/sh
# The first program of a node, under tini: sets up what only this node may see, then keeps the node's programs running.
# Runs as root in the node's own network, mount, uts, ipc and pid namespaces; what it mounts goes with them.
# $1 is the node's folder: node.env, data/, programs/ (one script each).
set -eu
folder=$1
. "$folder/node.env" # NODE_NAME SNAPSHOTS SHARED LOGS
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
data=$folder/data
hostname "$NODE_NAME"

# Sockets, pods' network namespaces and addresses go with the node, so /run is its own. The machine's is taken off
# first: a copy of another node's network namespace would keep that one alive.
mount --make-rprivate /
while read -r _ point _; do
  case $point in /run/tfjob-localcluster/*) umount --lazy "$point" ;; esac
done </proc/mounts
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/lock /run/netns /run/containerd /run/node/sysctl
: >/run/node/resolv.conf
for name in kubelet containerd log; do
  mkdir -p "$data/$name" /run/node/$name
  mount --bind "$data/$name" /run/node/$name
done
mkdir -p /run/node/log/pods /run/node/log/containers
mount --bind /run/node/log /var/log

# The layers of images come from the store that all nodes share, and no node can write to them.
for id in $SHARED; do
  target=/run/node/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/$id
  mount --bind "$SNAPSHOTS/$id" "$target"
  mount -o remount,bind,ro "$target"
done
# Kubernetes' volumes and pods' namespaces need mounts to be seen in all of the node.
mount --make-rshared /

# The kubelet sets these for the whole machine: it gets copies.
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys \
  kernel/keys/root_maxbytes; do
  copy=/run/node/sysctl/$(echo $name | tr / .)
  cat /proc/sys/$name >"$copy"
  mount --bind "$copy" /proc/sys/$name
done
# These belong to the node's network namespace.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables

keep() {
  while :; do
    "$folder/programs/$1" >>"$LOGS/$1.log" 2>&1 </dev/null && code=0 || code=$?
    echo "$1 ended with exit code $code; it is started again" >>"$LOGS/$1.log"
    sleep 1
  done
}

keep containerd &
tries=0
while [ ! -S /run/containerd/containerd.sock ] && [ $tries -lt 100 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
keep kubelet &
keep kube-proxy &
wait
