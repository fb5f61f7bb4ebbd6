#!/usr/bin/env bash
# Replays every WfCommons instance of a directory: `replay_all.sh DIRECTORY BYTES_SCALE TIME_SCALE`. Ends with 1 if any of them failed.
# One rule: each replay has a directory of its own, which is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
instances="$1" bytes_scale="$2" time_scale="$3"
export PATH="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}/bin:$PATH"
work="$(mktemp -d /tmp/replay.XXXXXX)"
state="$work/state"

# `shutdown` returns when the scheduler knows of it; its directory is free when nobody names it any more.
finish() {
    [ -d "$state" ] || return 0
    stager shutdown --state-dir "$state" >/dev/null 2>&1 || true
    for _ in $(seq 150); do
        grep -qsaF "$state" /proc/[0-9]*/cmdline || break
        sleep 0.2
    done
    rm -rf "$state"
}
trap 'finish; rm -rf "$work"' EXIT
[ -d "$instances" ] || { echo "no directory $instances; give one: make replay-all INSTANCES=DIRECTORY" >&2; exit 2; }

failed=() count=0
for instance in "$instances"/*.json; do
    count=$((count + 1))
    echo "== $instance"
    stager replay "$instance" --bytes-scale "$bytes_scale" --time-scale "$time_scale" --state-dir "$state" --quiet || failed+=("$instance")
    finish
done
echo "$((count - ${#failed[@]})) of $count instances replayed to the end"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
