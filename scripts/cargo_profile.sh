#!/usr/bin/env bash
# Prints the profile of Cargo.toml that the I/O node of tests and demos is built in: `release` where a
# release was built already, else `quick`.
set -euo pipefail
target="${CARGO_TARGET_DIR:-$HOME/.cache/stager/target}"
if [ -x "$target/release/stager-ionode" ]; then echo release; else echo quick; fi
