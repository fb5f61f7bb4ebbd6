#!/usr/bin/env bash
# The demo: makes a survey of the sky at an origin, then runs the mosaic workflow on it through an embedded I/O node.
# One rule: all it makes is below demo-out/, and nothing of it runs on when it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
# The jobs' Python is the one on PATH: the one that has MontagePy.
export PATH="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}/bin:$PATH"
state="$PWD/demo-out/state"
trap 'stager shutdown --state-dir "$state" >/dev/null 2>&1 || true' EXIT

mkdir -p demo-out
python3 workflows/montage/make_tiles.py demo-out/survey
stager submit workflows/montage/workflow.yml --state-dir "$state"
echo
echo "The mosaic is at its origin:"
ls -l demo-out/survey/mosaic
echo "Look at demo-out/survey/mosaic/mosaic.png, and at raw.png for what it would be without matched backgrounds."
