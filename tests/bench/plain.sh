#!/usr/bin/env bash
# What the daemon does for the demo tenant, by hand: the yardstick of `cargo x bench ready`.
#
#   plain.sh PLAN    prints "ready" when every component is, waits for the end of its input, stops all
#
# PLAN has one folder per component, written by the benchmark from the daemon's own recorded spec:
#   needs          names of components, one a line
#   kind           service or one-shot
#   pre-N.sh       first-start tasks, in order
#   main.sh        the program
#   probe.sh       succeeds when it is ready (services only), asked every `interval` microseconds
#
# A component's lock is held from the beginning and let go when it is ready; who needs it waits for the lock.
set -euo pipefail
cd "$1"
declare -A locks
jobs=()

stop() {
    trap - EXIT
    # All at once and by KILL: a server that is asked politely after its datastore is gone takes most of a minute.
    for pid in "${jobs[@]}" $(cat ./*/pid 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in $(cat ./*/pid 2>/dev/null); do while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done; done
}
trap stop EXIT
trap 'exit 1' TERM INT

until_ready() {
    local interval=$1 probe=$2 before rest
    while before=${EPOCHREALTIME/./}; ! sh "$probe"; do
        rest=$((interval - (${EPOCHREALTIME/./} - before)))
        ((rest <= 0)) || sleep "$(printf '0.%06d' "$rest")"
    done
}

component() {
    local name=$1 need pre
    while read -r need; do flock -s "$need/lock" true; done <"$name/needs"
    for pre in "$name"/pre-*.sh; do
        [ ! -e "$pre" ] || sh "$pre" >>"$name/log" 2>&1
    done
    if [ "$(<"$name/kind")" = one-shot ]; then
        sh "$name/main.sh" >>"$name/log" 2>&1
    else
        # Its parent is gone by the time it ends: it is found by its pid file.
        sh "$name/main.sh" >>"$name/log" 2>&1 &
        echo $! >"$name/pid"
        until_ready "$(<"$name/interval")" "$name/probe.sh"
    fi
    flock -u "${locks[$name]}"
}

for name in *; do
    exec {fd}>"$name/lock"
    flock "$fd"
    locks[$name]=$fd
done
for name in *; do
    component "$name" &
    jobs+=($!)
done
for _ in "${jobs[@]}"; do wait -n; done
jobs=()
echo ready
read -r _ || true
