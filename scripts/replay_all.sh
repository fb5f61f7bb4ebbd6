#!/usr/bin/env bash
# Replays every WfCommons instance of a directory: `replay_all.sh DIRECTORY BYTES_SCALE TIME_SCALE`.
# Ends with 1 if any of them failed. Prints a table as it goes: jobs, bytes fetched and staged to
# jobs, bytes of finals that were compared, predicted and real time of the run. One rule: each
# replay has a directory of its own, which is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
instances="$1" bytes_scale="$2" time_scale="$3"
export PATH="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}/bin:$PATH"
work="$(mktemp -d "${TMPDIR:-/tmp}/replay-all.XXXXXX")"
trap 'stager shutdown --now --state-dir "$work/state" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
compgen -G "$instances/*.json" >/dev/null || { echo "no instances in $instances; name their directory: make replay-all INSTANCES=DIRECTORY" >&2; exit 2; }

# The part of the command's output that a pattern of sed picks.
said() { sed -nE "s/$1/\\1/p" "$work/out" | head -1; }
row() { printf '%-42s %6s %10s %10s %10s %14s %14s\n' "$@"; }

failed=() count=0
echo "bytes x $bytes_scale, times x $time_scale, $(nproc) cores, $(date -u +%F)"
row instance jobs fetched staged finals predicted wall
for instance in "$instances"/*.json; do
    count=$((count + 1)) name="$(basename "$instance" .json)"
    if stager replay "$instance" --bytes-scale "$bytes_scale" --time-scale "$time_scale" --state-dir "$work/state" --quiet >"$work/out" 2>&1; then
        row "$name" "$(said '^ +jobs +([0-9]+) of .*')" "$(said '^ +fetched +([0-9.]+ [A-Za-z]+) for .*')" \
            "$(said '^.* for ([0-9.]+ [A-Za-z]+) staged.*')" "$(said '^checked [0-9]+ finals, ([0-9.]+ [A-Za-z]+):.*')" \
            "$(said '^run .*\(predicted ([^)]*)\).*')" "$(said '^run .* succeeded after ([^(]*[^( ]).*')"
    else
        failed+=("$name")
        row "$name" - - - - - FAILED
        tail -20 "$work/out" >&2
    fi
    stager shutdown --state-dir "$work/state" >/dev/null 2>&1 || true
    rm -rf "$work/state"
done
echo "$((count - ${#failed[@]})) of $count instances replayed to the end, every byte of every final compared"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
