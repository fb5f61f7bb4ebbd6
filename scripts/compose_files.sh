#!/usr/bin/env bash
# Lays into compose/files what the images of compose/ are built from: the wheel of stager, the S3
# server, and the Montage workflow with the origins of that cluster. STAGER_WHEEL and
# STAGER_VERSITYGW name files that are there already. Else the wheel is that of dist/, and `make
# wheel` makes it where there is none; the server is built with Go.
set -euo pipefail
cd "$(dirname "$0")/.."
files=compose/files
version="$(sed -n 's/.*versitygw@\(v[0-9.]*\).*/\1/p' scripts/setup.sh)"

say() { printf 'compose-files: %s\n' "$*" >&2; }

if [ -z "${STAGER_WHEEL:-}" ]; then
    compgen -G 'dist/stager-*.whl' >/dev/null || scripts/wheel.sh >&2
    STAGER_WHEEL="$(echo dist/stager-*.whl)"
fi
rm -rf "$files"
mkdir -p "$files/montage"
cp "$STAGER_WHEEL" "$files/"
if [ -n "${STAGER_VERSITYGW:-}" ]; then
    cp "$STAGER_VERSITYGW" "$files/versitygw"
else
    command -v go >/dev/null || { say "the S3 server (versitygw) is built with Go 1.21 or newer, which is not here"; exit 1; }
    say "building the S3 server"
    # Without the C library of this machine, which may be newer than that of the image.
    CGO_ENABLED=0 GOBIN="$PWD/$files" go install "github.com/versity/versitygw/cmd/versitygw@$version"
fi
cp workflows/montage/*.py "$files/montage/"
python3 - workflows/montage/workflow.yml "$files/montage/workflow.yml" <<'END_OF_PYTHON'
import re
import sys
from pathlib import Path

LAB = '{{url: "sftp://lab@lab:2222/origin/{place}", credentials: "key:/secrets/lab/key", known_hosts: /secrets/lab/known_hosts}}'
S3 = '{url: "s3://results/montage", credentials: "profile:results", endpoint: "http://s3:7070", addressing: path, allow_http: true}'
text = Path(sys.argv[1]).read_text()
origins = f"  survey: {LAB.format(place='survey')}\n  code: {LAB.format(place='montage')}\n  results: {S3}\n"
text, count = re.subn(r"^  survey: file:.*\n", lambda _: origins, text, flags=re.M)
assert count == 1, "the workflow names its origin otherwise than it did"
Path(sys.argv[2]).write_text(text.replace(": here:", ": code:").replace(": survey:mosaic/", ": results:mosaic/"))
END_OF_PYTHON
say "compose/files is there"
