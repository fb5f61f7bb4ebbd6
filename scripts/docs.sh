#!/usr/bin/env bash
# MkDocs on this project's pages: `docs.sh build` fails at any warning, `docs.sh serve` shows them.
# `make docs` installs what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
# The notice on the future of MkDocs and Material is for those who choose versions: pyproject.toml
# has them.
export NO_MKDOCS_2_WARNING=1
mkdocs="${VENV:-$PWD/.venv}/bin/mkdocs"
[ "${1:-}" = build ] || exec "$mkdocs" "$@"
# Not --quiet: --strict would then count no warning.
said="$(mktemp)"
trap 'rm -f "$said"' EXIT
"$mkdocs" build --strict >"$said" 2>&1 || { cat "$said" >&2; exit 1; }
