#!/usr/bin/env bash
# Builds what is released into dist/: the sdist of stager, one wheel of it for every Python and
# every x86-64 Linux with glibc 2.28 or newer, and the wheels of the plugins. The tools come into an
# environment of their own. One rule: the wheel is built from the sdist, so that neither lacks what
# the other has.
set -euo pipefail
cd "$(dirname "$0")/.."
glibc=2.28
cache="$HOME/.cache/stager"
tools="$cache/wheel-tools"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/target}/wheel"
export PATH="$tools/bin:$PATH:$HOME/.cargo/bin"

say() { printf 'wheel: %s\n' "$*" >&2; }

# Exactly: another linker is another binary.
need_tools() {
    local wanted="build==1.6.1 ziglang==0.17.0 cargo-zigbuild==0.24.0 auditwheel==6.8.2"
    [ -f "$tools/.installed" ] && [ "$(cat "$tools/.installed")" = "$wanted" ] && return 0
    say "installing the tools"
    local python="${VENV:-$PWD/.venv}/bin/python"
    # A new clone has none yet.
    [ -x "$python" ] || python=python3
    "$python" -m venv --clear "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/python" -m pip install -q --disable-pip-version-check $wanted
    echo "$wanted" >"$tools/.installed"
}

# At one place for all clones, and each time at the same: cargo knows a crate by its path, and would
# compile it anew elsewhere.
unpack_sdist() {
    exec 9>"$cache/wheel-source.lock"
    flock 9
    rm -rf "$cache/wheel-source"
    mkdir -p "$cache/wheel-source"
    tar -xzf dist/stager-*.tar.gz -C "$cache/wheel-source" --strip-components=1
}

need_tools
rm -rf dist
mkdir dist
say "packing the sdist"
python -m build --sdist --outdir dist . >/dev/null
unpack_sdist
say "building the wheel; this takes minutes the first time"
STAGER_WHEEL_GLIBC="$glibc" python -m build --wheel --outdir dist "$cache/wheel-source" >/dev/null
for plugin in airflow pegasus; do
    say "building the wheel of plugins/$plugin"
    python -m build --wheel --outdir dist "plugins/$plugin" >/dev/null
done
auditwheel show dist/stager-*.whl >dist/.audit
grep -q "manylinux_${glibc/./_}_x86_64\|manylinux_2_[0-9]_\|manylinux_2_1[0-9]_\|manylinux_2_2[0-7]_" dist/.audit || { cat dist/.audit >&2; say "needs a newer glibc than $glibc"; exit 1; }
ls -l dist
