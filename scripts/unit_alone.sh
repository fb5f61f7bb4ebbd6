#!/usr/bin/env bash
# The unit tests of what is committed, in a clone that has nothing beside it, with the environment
# and the binary of this one: what they need besides must come from scripts/setup.sh or from the
# tests themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}"
[[ $venv == /* ]] || venv="$PWD/$venv"
work="$(mktemp -d "${TMPDIR:-/tmp}/stager-alone.XXXXXX")"
trap 'rm -rf "$work"' EXIT
git clone --quiet --no-hardlinks . "$work/stager"
cd "$work/stager"
unset STAGER_SHARED
export PYTHONPATH="$PWD"
"$venv/bin/python" -c 'import pathlib, stager; assert pathlib.Path(stager.__file__).is_relative_to(pathlib.Path.cwd()), stager.__file__'
echo "== the unit tests once more, in a clone with nothing beside it ($work)"
"$venv/bin/python" -m pytest -n "${WORKERS:-2}" -m "not slow and not heavy" -p no:cacheprovider tests/unit
