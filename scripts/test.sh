#!/usr/bin/env bash
# Every test but those that are marked heavy. Those of cargo run beside pytest: both wait for disks,
# servers and clocks most of the time. One rule: both run to their end whatever fails, and what failed
# is told in the last lines, since of long output often only these are kept. Call it by `make test`.
# With UNITS_APART=1 it leaves to `make unit-alone` what that runs, whole.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}/bin/python"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

scripts/setup.sh test
setup_s=$SECONDS

# cargo_side: what it says is shown in one piece, when it is over.
cargo_side() {
    local status=0 begun=$SECONDS how=(--profile quick --no-default-features --locked)
    # Of what pytest leaves of the processor. What does not build is told by the next line.
    nice -n 5 cargo test --workspace --no-run --quiet "${how[@]}" >/dev/null 2>&1 || true
    "$python" scripts/cargo_tests.py || { status=1; echo "FAILED: tests of cargo"; }
    cargo build "${how[@]}" -p stager-fuzz || { status=1; echo "FAILED: the fuzz targets do not build"; }
    echo $((SECONDS - begun)) >"$work/cargo_s"
    return $status
}

{
    status=0
    cargo_side >"$work/cargo" 2>&1 || status=1
    echo
    cat "$work/cargo"
    grep -A 1 '^FAILED\|^test .* FAILED$\|panicked at' "$work/cargo" | head -n 20 >"$work/cargo_failures" || true
    exit $status
} &
cargo=$!
trap 'kill "$cargo" 2>/dev/null || true; rm -rf "$work"' EXIT

status=0
# In a new clone each worker would compile all tests for itself, in 11 s of its processor's time.
[ -d tests/e2e/__pycache__ ] || "$python" -m pytest --collect-only -q tests >/dev/null || true
"$python" -m pytest -m "not heavy" -n "${TEST_WORKERS:-5}" --dist loadgroup ${UNITS_APART:+--units-apart} --longest-first --no-loadscope-reorder --durations=20 --durations-min=5 --failures-to "$work/failures" tests || status=1
pytest_s=$((SECONDS - setup_s))
wait "$cargo" || status=1
echo "make test: setting up $setup_s s; pytest $pytest_s s, and beside it the tests of cargo $(cat "$work/cargo_s") s; together $SECONDS s"
if [ $status != 0 ]; then
    echo "make test: something failed, see above; in short:"
    cat "$work/failures" "$work/cargo_failures" 2>/dev/null || true
fi
exit $status
