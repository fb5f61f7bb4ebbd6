#!/usr/bin/env bash
# MkDocs on this project's pages: `docs.sh build --strict`, `docs.sh serve`. `make docs` installs what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
# The notice on the future of MkDocs and Material is for those who choose versions: pyproject.toml has them.
export NO_MKDOCS_2_WARNING=1
exec "${VENV:-$PWD/.venv}/bin/mkdocs" "$@"
