#!/usr/bin/env bash
# Prepares a machine: `setup.sh run` for what a user needs, `setup.sh demo` for the same with an I/O
# node that is built quickly where there is none, `setup.sh unit` for what the unit tests need
# besides, `setup.sh test` for what all tests need, `setup.sh lint` for the checks before them,
# `setup.sh bench` for peers of the benchmarks, `setup.sh povray` for what the workflow povray needs,
# `setup.sh recorded` for the recorded workflows of the tests alone, `setup.sh engine` for a Docker
# engine, `setup.sh made` for the made set of the benchmarks alone, `setup.sh race` for what bench_race
# races. One rule: each step looks first whether its work is done, so that a second call costs a second.
set -euo pipefail
cd "$(dirname "$0")/.."
level="${1:-run}"
cache="$HOME/.cache/stager"
venv="${VENV:-${VIRTUAL_ENV:-$PWD/.venv}}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/target}"
export PATH="$PATH:$HOME/.cargo/bin:/usr/local/go/bin:/usr/sbin:/sbin"

users_extras=workflows
all_extras=test,workflows,dev,docs

say() { printf 'setup: %s\n' "$*" >&2; }
stop() { say "$*"; exit 1; }

# timed NAME COMMAND…: a first set-up takes minutes, and this prints which parts take them. It prints
# nothing of a part that was done before. Never call it in a condition: the command must end the
# script where it fails.
timed() {
    local name="$1" begun=$SECONDS
    shift
    "$@"
    [ $((SECONDS - begun)) -lt 2 ] || say "$name: $((SECONDS - begun)) s"
}

can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }

# No service of the machine may start because of us, now or at the next boot. The tests run their own
# ssh and web servers.
install_packages() (
    policy=/usr/sbin/policy-rc.d
    say "installing $*"
    apt-get update -qq
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\n# Here only while scripts/setup.sh of stager installs packages.\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    [[ " $* " != *" openssh-server "* ]] || update-rc.d ssh disable
    [[ " $* " != *" docker-registry "* ]] || update-rc.d docker-registry disable
    [[ " $* " != *" nginx-light "* ]] || update-rc.d nginx disable
    [[ " $* " != *" docker.io "* ]] || update-rc.d docker disable
    [[ " $* " != *" redis-server "* ]] || update-rc.d redis-server disable
)

# Link a program for real: Debian's gcc can be there without the headers and the start files of the
# C library.
can_link() {
    local program status=0
    program="$(mktemp)"
    cc -x c -o "$program" - <<<'int main(void) { return 0; }' 2>/dev/null || status=1
    rm -f "$program"
    return $status
}

find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

venv_is_made() { [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; }

rust_is_new_enough() { printf '%s\n' 1.90 "$(cargo --version 2>/dev/null | cut -d' ' -f2)" | sort -VC; }

# What is missing to build stager, by the names of Debian.
missing_packages() {
    local python
    can_link || echo gcc libc6-dev
    venv_is_made && return 0
    python="$(find_python)" || { command -v python3 >/dev/null || echo python3 python3-venv; return 0; }
    "$python" -c 'import ensurepip' >/dev/null 2>&1 || case "$python" in
        python3.*) echo "$python-venv" ;;
        *) echo python3-venv ;;
    esac
}

# Brought where we may; else all of it is told at once, before anything is made.
need_to_build() {
    local packages told=()
    read -ra packages <<<"$(missing_packages | tr '\n' ' ')"
    rust_is_new_enough || told+=("Rust 1.90 or newer: https://rustup.rs")
    venv_is_made || find_python >/dev/null || ! command -v python3 >/dev/null || told+=("Python 3.11 or newer")
    if [ ${#told[@]} -eq 0 ] && can_install; then
        [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
        return 0
    fi
    [ ${#packages[@]} -eq 0 ] || told+=("apt-get install ${packages[*]}   (as root; the names are those of Debian and Ubuntu)")
    [ ${#told[@]} -eq 0 ] && return 0
    say "this machine lacks what stager is built with; install it and call again:"
    printf 'setup:   %s\n' "${told[@]}" >&2
    exit 1
}

# A package counts as there when its program is. Without root, setup prints which are missing, and
# the tests that need one say so when they are skipped.
need_to_test() {
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if can_install; then
        install_packages "${missing[@]}"
    else
        say "not installed: ${missing[*]}; install them to run everything (here they are installed only as root on Debian)"
    fi
}

make_venv() {
    venv_is_made && return 0
    local python
    python="$(find_python)" || stop "the python3 of this system is older than 3.11; install a newer one and call again"
    say "making the virtual environment $venv"
    "$python" -m venv "$venv"
}

# pip_into PYTHON WHAT…: by uv, which takes a tenth of pip's time, where pip may ask the usual index.
# Settings of pip that name another one are pip's own (docs/decisions/2026-11-26-uv-in-set-up.md).
pip_into() {
    local python="$1"
    shift
    if quick_pip; then
        env ${PIP_FIND_LINKS:+UV_FIND_LINKS="$PIP_FIND_LINKS"} ${PIP_CERT:+SSL_CERT_FILE="$PIP_CERT"} \
            "$cache/uv/bin/uv" pip install -q --python "$python" "$@" && return 0
        say "uv could not install it; pip tries"
    fi
    "$venv/bin/python" -m pip --python "$python" install -q --disable-pip-version-check "$@"
}

quick_pip() {
    local wanted="uv>=0.9,<1"
    [ -z "${PIP_NO_INDEX:-}${PIP_CONSTRAINT:-}" ] || return 1
    ! "$venv/bin/python" -m pip config list 2>/dev/null | grep -qE "index-url|no-index|constraint|proxy|trusted-host" || return 1
    [ -x "$cache/uv/bin/uv" ] && [ "$(cat "$cache/uv/.installed" 2>/dev/null)" = "$wanted" ] && return 0
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-compile --upgrade --target "$cache/uv" "$wanted" 2>/dev/null || return 1
    echo "$wanted" >"$cache/uv/.installed"
}

# install_package EXTRAS: who has all of them has those of a user, too.
install_package() {
    local stamp="$venv/.stager-installed" wanted
    wanted="$(cat pyproject.toml hatch_build.py <(echo "$PWD") <("$venv/bin/python" --version) | sha256sum)"
    [ -f "$stamp" ] && { [ "$(cat "$stamp")" = "$wanted $1" ] || [ "$(cat "$stamp")" = "$wanted $all_extras" ]; } && return 0
    say "installing stager[$1] into $venv"
    STAGER_BINARY_LATER=1 pip_into "$venv/bin/python" -e ".[$1]"
    echo "$wanted $1" >"$stamp"
}

# Not by pip, which would hide what the compiler says. Beside everything else that is brought
# meanwhile.
start_building() {
    local profile=release how=()
    # Whoever only looks or tests waits for nothing that makes it fast.
    case "$level" in
        demo | unit | lint | test) profile="$(scripts/cargo_profile.sh)" ;;
    esac
    how=(--profile "$profile" --locked --quiet)
    [ "$profile" = release ] || how+=(--no-default-features)
    built="$CARGO_TARGET_DIR/$profile/stager-ionode"
    [ -x "$built" ] || say "building the I/O node; this takes minutes the first time"
    scripts/own_target.sh
    build_node &
    building=$!
    # A set-up that is interrupted leaves nothing running in the background.
    trap 'kill "$building" 2>/dev/null || true' EXIT
}

build_node() {
    local cargo
    trap 'kill "$cargo" 2>/dev/null; exit 143' TERM
    cargo build "${how[@]}" -p stager-node --bin stager-ionode &
    cargo=$!
    wait "$cargo"
}

finish_building() {
    wait "$building"
    trap - EXIT
}

# Beside `stager`, where a wheel would have put it. Cargo alone decides whether it is up to date.
refresh_ionode() {
    local target="$venv/bin/stager-ionode"
    cmp -s "$built" "$target" && return 0
    install -m 0755 "$built" "$target.new.$$"
    mv "$target.new.$$" "$target"
}

# Said each time: a suite that leaves tests out must not look like one that ran them.
need_s3_server() {
    [ -x "$cache/bin/versitygw" ] && return 0
    if command -v go >/dev/null 2>&1; then
        say "building the S3 server of the tests (versitygw)"
        build_s3_server github.com/versity/versitygw@v1.8.0 && return 0
        say "versitygw could not be built"
    fi
    say "without versitygw (built where there is Go 1.21 or newer) moto is the S3 server of the tests; those of cargo that need S3 are left out"
    [ -x "$cache/moto/bin/moto_server" ] && return 0
    say "installing moto"
    "$venv/bin/python" -m venv --without-pip "$cache/moto"
    pip_into "$cache/moto/bin/python" 'moto[s3,server]>=5.1'
}

# With a main program of ours (scripts/s3_server.go). Nobody debugs it.
build_s3_server() (
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    cp scripts/s3_server.go "$work/main.go" && mkdir -p "$cache/bin" && cd "$work" || exit 1
    { go mod init s3_server && go get "$1"; } 2>/dev/null &&
        go build -mod=mod -gcflags=all=-dwarf=false -ldflags="-s -w" -o "$cache/bin/versitygw.new.$$" . &&
        mv "$cache/bin/versitygw.new.$$" "$cache/bin/versitygw"
)

# Clients that the tests of the S3 endpoint call. Apart from our own environment: they pin another
# botocore than ours. Not compiled: of 550 MB they import little.
need_s3_clients() {
    local place="$cache/s3clients" wanted="awscli>=1.44 s3fs>=2026.1 pandas>=3 pyarrow>=22 s3cmd>=2.4"
    [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ] && return 0
    say "installing the S3 clients of the tests (aws, s3cmd, s3fs, pandas, pyarrow: 550 MB)"
    "$venv/bin/python" -m venv --without-pip "$place"
    # shellcheck disable=SC2086
    if pip_into "$place/bin/python" $wanted; then
        echo "$wanted" >"$place/.installed"
    else
        say "they could not be installed; the tests that need them say so when they skip"
    fi
}

# The program that the tests of plugins/pegasus are compared with, and the API that its example is
# written with. Apart and bare: what it asks for besides is for clouds that no test calls.
need_pegasus_transfer() {
    local place="$cache/pegasus" wanted="pegasus-wms.worker==5.1.3 pegasus-wms.api==5.1.3 pegasus-wms.common==5.1.3 six PyYAML" name
    [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ] && return 0
    say "installing pegasus-transfer and Pegasus.api for the tests"
    "$venv/bin/python" -m venv --without-pip "$place"
    # shellcheck disable=SC2086
    if ! pip_into "$place/bin/python" --no-deps $wanted; then
        say "it could not be installed; the tests that need it say so when they skip"
        return 0
    fi
    # Its wheel has no scripts.
    for name in transfer integrity; do
        { echo "#!$place/bin/python"; cat "$place"/lib/python3*/site-packages/Pegasus/cli/pegasus-$name.py; } >"$place/bin/pegasus-$name"
        chmod 0755 "$place/bin/pegasus-$name"
    done
    echo "$wanted" >"$place/.installed"
}

# What bench_race has beside stager. Its plugin for ssh asks for pysftp, which newer ones of paramiko
# do not know.
need_snakemake() {
    local place="$cache/snakemake" wanted="snakemake==9.27.1 snakemake-storage-plugin-s3==0.3.6 snakemake-storage-plugin-sftp==0.1.3 paramiko<4 setuptools<81"
    [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ] && return 0
    say "installing Snakemake with its storage plugins for the benchmarks"
    "$venv/bin/python" -m venv --clear --without-pip "$place"
    # shellcheck disable=SC2086
    if pip_into "$place/bin/python" $wanted; then
        echo "$wanted" >"$place/.installed"
    else
        say "it could not be installed; bench_race says so and goes on without it"
    fi
}

# Too, of its jars alone: the program that its own installer brings is not among packages. Its plugin
# for buckets is not either.
need_nextflow() (
    place="$cache/nextflow" wanted=24.10.0
    [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ] && exit 0
    say "installing Nextflow $wanted for the benchmarks"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    cat >"$work/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>stager</groupId><artifactId>bench-race</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>io.nextflow</groupId><artifactId>nextflow</artifactId><version>$wanted</version></dependency>
  </dependencies>
</project>
END
    rm -rf "$place"
    if (cd "$work" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$place/lib") >/dev/null; then
        echo "$wanted" >"$place/.installed"
    else
        say "it could not be installed; bench_race says so and goes on without it"
    fi
)

# Recorded workflows for tests, benchmarks and `make replay-all`. Only they are kept: wfcommons
# brings half a gigabyte that nothing of ours needs.
need_recorded_workflows() {
    local place="$cache/recorded" wanted
    wanted="wfcommons==1.6 $(sha256sum <scripts/record_workflows.py)"
    [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ] && return 0
    say "making recorded workflows for the tests (wfcommons: 500 MB, removed afterwards)"
    if run_recipes "${wanted%% *}" record_workflows.py "$place"; then
        echo "$wanted" >"$place/.installed"
    else
        say "they could not be made; the tests that need them say so when they skip"
    fi
}

# Workflows that benchmarks judge by, drawn from recipes. The manifest that is kept in the project
# says what comes out.
need_made_workflows() {
    local place="$cache/made" wanted
    wanted="wfcommons==1.6 $(cat scripts/make_workflows.py scripts/record_workflows.py | sha256sum)"
    if ! { [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ]; }; then
        say "making the made set for benchmarks (wfcommons: 500 MB, removed afterwards)"
        run_recipes "${wanted%% *}" make_workflows.py "$place" || { say "it could not be made; benchmarks that ask for it stop"; return 0; }
        echo "$wanted" >"$place/.installed"
    fi
    diff -q <(grep sha256 benchmarks/made_set.json) <(grep sha256 "$place/MANIFEST") >/dev/null ||
        say "the made set is not the one of benchmarks/made_set.json: figures of docs/evaluation.md are of another (its numpy and scipy: $(head -1 benchmarks/made_set.json))"
}

# run_recipes WFCOMMONS SCRIPT PLACE
run_recipes() (
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    "$(find_python)" -m venv --without-pip "$work/venv" && pip_into "$work/venv/bin/python" "$1" || exit 1
    "$work/venv/bin/python" "scripts/$2" "$work/made" || exit 1
    # What other clones read just now is replaced file by file, never missing.
    mkdir -p "$3"
    for file in "$work"/made/*; do
        mv "$file" "$3/.new.$$" && mv "$3/.new.$$" "$3/${file##*/}" || exit 1
    done
)

# Airflow for the tests of plugins/airflow, with what stager needs beside it but without stager,
# which each clone brings itself, and with a database that is ready to be copied.
need_airflow() {
    local place="$cache/airflow" wanted
    wanted="apache-airflow>=3.3,<4 apache-airflow-providers-sftp setuptools>=77 flit_core>=3.11 hatchling>=1.27 hatch-vcs>=0.5 pytest>=8.3 pytest-timeout>=2.3 hypothesis>=6.115 jsonschema>=4.23"
    wanted+=" $("$venv/bin/python" -c 'import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["fsspec"])')"
    [ -f "$place/.installed" ] && [ "$(cat "$place/.installed")" = "$wanted" ] && return 0
    say "installing Apache Airflow for the tests (200 MB)"
    "$venv/bin/python" -m venv --clear "$place"
    # shellcheck disable=SC2086
    if pip_into "$place/bin/python" $wanted && make_airflow_database "$place"; then
        echo "$wanted" >"$place/.installed"
    else
        say "it could not be installed; the tests that need it say so when they skip"
    fi
}

make_airflow_database() (
    home="$(mktemp -d)"
    trap 'rm -rf "$home"' EXIT
    AIRFLOW_HOME="$home" AIRFLOW__CORE__LOAD_EXAMPLES=False "$1/bin/airflow" db migrate >/dev/null 2>&1 && mv "$home/airflow.db" "$1/airflow.db"
)

# Crates of other systems too: cargo-deny reads all of Cargo.lock, and no build here brings them.
need_all_crates() {
    cargo fetch --locked --offline --quiet 2>/dev/null || cargo fetch --locked --quiet
}

# Quicker to build without optimisation, and it runs for seconds only.
need_cargo_deny() {
    local wanted=0.18.9
    [ "$("$cache/bin/cargo-deny" --version 2>/dev/null)" = "cargo-deny $wanted" ] && return 0
    say "building cargo-deny for \`make lint\`; this takes minutes the first time"
    cargo install --locked --quiet --debug --root "$cache" --target-dir "$CARGO_TARGET_DIR/deny" "cargo-deny@$wanted" || return 1
    rm -rf "$CARGO_TARGET_DIR/deny"
}

# The scenes are called documentation, which the dpkg of many container images leaves out.
need_povray() {
    command -v povray >/dev/null 2>&1 && [ -d /usr/share/doc/povray/examples ] && return 0
    if can_install; then
        install_packages -o 'DPkg::Options::=--path-include=/usr/share/doc/povray/*' povray povray-examples
    else
        say "POV-Ray and its examples are missing: apt-get install povray povray-examples   (here they are installed only as root on Debian)"
        return 1
    fi
}

want_povray() { need_povray || say "without them the tests that render are skipped"; }

bring_test_tools() {
    local simgrid=()
    # A module of the system's own Python, so no program tells whether it is there.
    /usr/bin/python3 -c 'import simgrid' 2>/dev/null || simgrid=(simgrid:python3-simgrid)
    timed 'packages of the system' need_to_test strace:strace sshd:openssh-server ssh-keygen:openssh-client sshfs:sshfs fusermount3:fuse3 ps:procps ip:iproute2 faketime:faketime iperf3:iperf3 g++:g++ \
        nginx:nginx-light openssl:openssl rclone:rclone curl:curl msmtp:msmtp mksquashfs:squashfs-tools skopeo:skopeo docker-registry:docker-registry chromium:chromium chromedriver:chromium-driver "${simgrid[@]}"
    timed 'POV-Ray' want_povray
    timed 'the S3 server' need_s3_server
    timed 'the S3 clients' need_s3_clients
    timed 'pegasus-transfer' need_pegasus_transfer
    timed 'the recorded workflows' need_recorded_workflows
    timed 'Airflow' need_airflow
}

# Before minutes of building.
[ "$level" != povray ] || need_povray || exit 1
if [ "$level" = engine ]; then
    need_to_test dockerd:docker.io docker:docker.io docker-compose:docker-compose debootstrap:debootstrap
    exit 0
fi
if [ "$level" = recorded ]; then
    need_recorded_workflows
    [ -f "$cache/recorded/.installed" ] || exit 1
    exit 0
fi
if [ "$level" = made ]; then
    need_made_workflows
    [ -f "$cache/made/.installed" ] || exit 1
    exit 0
fi
if [ "$level" = race ]; then
    need_to_test make:make rclone:rclone java:default-jre-headless mvn:maven
    need_snakemake
    need_nextflow
    need_recorded_workflows
    exit 0
fi
timed 'what stager is built with' need_to_build
timed 'the virtual environment' make_venv
start_building
if [ "$level" = run ] || [ "$level" = demo ] || [ "$level" = povray ]; then extras="$users_extras"; else extras="$all_extras"; fi
timed "stager[$extras] and what it depends on" install_package "$extras"
[ "$level" != test ] || bring_test_tools
# What it still takes beside what was brought meanwhile.
timed 'waiting for what cargo builds' finish_building
refresh_ionode
[[ "$built" != */quick/* ]] || say "this I/O node was built quickly, for a first look and for tests; \`make setup-run\` builds the fast one"
if [ "$level" = lint ]; then
    timed 'crates of other systems' need_all_crates
    timed 'cargo-deny' need_cargo_deny
fi
[ "$SECONDS" -lt 5 ] || say "all of it: $SECONDS s"
if [ "$level" = bench ]; then
    need_to_test wrk:wrk redis-server:redis-server
    [ -e /usr/include/lmdb.h ] || need_to_test lmdb.h:liblmdb-dev
    need_made_workflows
fi
