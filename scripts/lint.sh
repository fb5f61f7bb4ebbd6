#!/usr/bin/env bash
# The checks that need no test: `lint.sh quick` in seconds, `lint.sh all` as CI runs them. Each runs
# even if one before it failed.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="${VENV:-$PWD/.venv}/bin"
failed=()

check() {
    local name="$1" begun=$SECONDS
    shift
    if "$@"; then
        printf 'lint: %-14s ok, %d s\n' "$name" $((SECONDS - begun))
    else
        printf 'lint: %-14s FAILED\n' "$name"
        failed+=("$name")
    fi
}

# A file whose name says no type that there is, is an error.
changelog_can_be_made() { "$bin/towncrier" build --draft --version next >/dev/null; }

shell_scripts() { git ls-files -z | xargs -0 grep -lIE '^#!.*\b(ba)?sh$' --; }

# In a shell of its own, whose list of what failed is its own, too.
clippy_is_content() {
    check clippy cargo clippy --profile quick --no-default-features --locked --workspace --all-targets --quiet -- -D warnings
    [ ${#failed[@]} -eq 0 ]
}

case "${1:-all}" in
    quick | all) ;;
    *) echo "lint.sh: 'quick' or 'all', not '$1'" >&2; exit 2 ;;
esac
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
if [ "${1:-all}" = all ]; then
    # It compiles for minutes where nothing was compiled before, and the other checks have one core.
    clippy_is_content >"$work/clippy" 2>&1 &
    clippy=$!
    trap 'kill "$clippy" 2>/dev/null || true; rm -rf "$work"' EXIT
fi
check 'ruff check' "$bin/ruff" check --quiet .
check 'ruff format' "$bin/ruff" format --check --quiet .
check rustfmt cargo fmt --all --check
mapfile -t scripts < <(shell_scripts)
check shellcheck "$bin/shellcheck" "${scripts[@]}"
check changelog changelog_can_be_made
if [ "${1:-all}" = all ]; then
    check mypy "$bin/mypy"
    check docs scripts/docs.sh build
    check 'cargo deny' "$HOME/.cache/stager/bin/cargo-deny" --offline --log-level error check --hide-inclusion-graph --deny unmatched-skip licenses bans sources
    wait "$clippy" || failed+=(clippy)
    cat "$work/clippy"
fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: failed: ${failed[*]}; \`ruff format .\` and \`cargo fmt --all\` mend what is only format"
    exit 1
fi
