#!/usr/bin/env bash
# The demos: `demo.sh [montage | povray | supernovae | earthquakes]` makes data at an origin, then
# runs the workflow on it through an embedded I/O node. One rule: all it makes is below demo-out/,
# and nothing of it runs on when it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
# The jobs' Python is the one on PATH: the one that has what the workflows need.
export PATH="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}/bin:$PATH"
state="$PWD/demo-out/state"
trap 'stager shutdown --state-dir "$state" >/dev/null 2>&1 || true' EXIT

run() {
    stager submit "workflows/$1/workflow.yml" --state-dir "$state"
    echo
}

# Words after the name go to the program that makes the data: `demo.sh povray --scene chess2 --width
# 640`. The mosaic has a fixed number of tiles.
name="${1:-montage}"
shift || true
mkdir -p demo-out
case "$name" in
montage)
    python3 workflows/montage/make_tiles.py demo-out/survey
    run montage
    echo "The mosaic is at its origin:"
    ls -l demo-out/survey/mosaic
    echo "Look at demo-out/survey/mosaic/mosaic.png, and at raw.png for what it would be without matched backgrounds."
    ;;
povray)
    python3 workflows/povray/make_scenes.py demo-out/studio "$@"
    run povray
    echo "The pictures are at their origin:"
    ls -l demo-out/studio/pictures
    ;;
supernovae)
    python3 workflows/supernovae/make_exposures.py demo-out/field "$@"
    run supernovae
    echo "What was found is at its origin, demo-out/field/found; beside what was injected:"
    cat demo-out/field/found/score.json
    echo "Look at demo-out/field/found/chart.png: the field, and each transient in the differences of all nights."
    ;;
earthquakes)
    python3 workflows/earthquakes/make_catalogue.py demo-out/quakes "$@"
    run earthquakes
    echo "The sequences are at their origin:"
    cat demo-out/quakes/found/sequences.csv
    echo "Look at demo-out/quakes/found/sequences.html."
    ;;
*)
    echo "demo.sh: there is no demo $name; there are montage, povray, supernovae and earthquakes" >&2
    exit 2
    ;;
esac
