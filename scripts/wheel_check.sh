#!/usr/bin/env bash
# Installs the wheel of dist/ with pip, and runs the quick start, on bare Debian 11 and Debian 12
# without Rust and without a compiler. Needs root on Debian, and Debian's packages. One rule: the
# roots keep nothing. Each check works in a copy of its own, which is removed.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="$HOME/.cache/stager/roots"
mirror="${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
export PATH="$PATH:/usr/sbin:/sbin"
umask 022

say() { printf 'wheel-check: %s\n' "$*" >&2; }
stop() { say "$*"; exit 1; }

# make_root SUITE NAME PACKAGES: cached, and made anew when the packages change.
make_root() {
    local root="$cache/$2"
    [ -f "$root/.made" ] && [ "$(cat "$root/.made")" = "$1 $3" ] && return 0
    say "making a bare $1 ($2)"
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --keyring="$keyring" --include="$3" "$1" "$root" "$mirror" >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; return 1; }
    echo "$1 $3" >"$root/.made"
}

# inside ROOT COMMAND…: in processes, mounts and a /tmp of its own.
inside() {
    local root="$1"
    shift
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -euc '
        root="$1"; shift
        mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"; mount -t tmpfs tmpfs "$root/tmp"
        exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' bash "$root" "$@"
}

# How this machine reaches the package index: names, certificates, pip.
let_it_reach_the_index() {
    local file
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || install -D -m 0644 "$(readlink -f "$file")" "$1$file"
    done
}

# Debian 11 has Python 3.9, and its users build a newer one. So do we: the source of Debian 12,
# compiled in a Debian 11 of its own.
need_python_of_debian_11() {
    local root="$cache/debian11-builder" made="$cache/python3.11-of-debian11.tar"
    [ ! -f "$made" ] || return 0
    make_root bullseye debian11-builder build-essential,dpkg-dev,ca-certificates,zlib1g-dev,libssl-dev,libffi-dev,libsqlite3-dev,libbz2-dev,liblzma-dev,uuid-dev
    let_it_reach_the_index "$root"
    say "building Python 3.11 for Debian 11; this takes minutes, once"
    echo "deb-src $mirror bookworm main" >"$root/etc/apt/sources.list.d/source.list"
    # shellcheck disable=SC2016
    inside "$root" bash -euc '
        mkdir -p /build; cd /build
        apt-get update -qq; apt-get source -qq --download-only python3.11
        tar -xf python3.11_*.orig.tar.*; cd Python-3.11*
        ./configure -q --prefix=/opt/python3.11; make -s -j"$(nproc)"; make -s install' >"$root.build.log" 2>&1 || { tail -5 "$root.build.log" >&2; return 1; }
    tar -C "$root" -cf "$made.new" opt/python3.11
    mv "$made.new" "$made"
    rm -rf "$root"
}

as_a_user() {
    cat <<'END'
for program in cargo rustc cc gcc g++ clang; do
    if command -v $program; then echo "$program is here" >&2; exit 1; fi
done
$1 -m venv ~/stager
~/stager/bin/python -m pip install -q --disable-pip-version-check --only-binary :all: /wheels/stager-*.whl
PATH=$HOME/stager/bin:$PATH
cd /quickstart
stager --version
stager-ionode --version
stager plan workflow.yml >/tmp/plan
stager submit workflow.yml
stager shutdown
head -3 out/words.txt
END
}

# check NAME PYTHON: as a user with an ordinary account would do it.
check() (
    root="$(mktemp -d "$cache/$1.XXXXXX")"
    trap 'rm -rf "$root"' EXIT
    cp -a "$cache/$1/." "$root"
    [ "$1" != debian11 ] || tar -C "$root" -xf "$cache/python3.11-of-debian11.tar"
    let_it_reach_the_index "$root"
    mkdir "$root/wheels"
    cp dist/stager-*.whl "$root/wheels"
    cp -r workflows/quickstart "$root/quickstart"
    say "$1: $(inside "$root" sh -c "ldd --version | head -1; $2 --version" | tr '\n' ' ')"
    as_a_user >"$root/check.sh"
    inside "$root" useradd --create-home me
    inside "$root" chown -R me /quickstart
    inside "$root" su me -s /bin/bash -c "bash -eu /check.sh $2" | tee "$root/said"
    the="$(cat workflows/quickstart/texts/* | tr -cs '[:alpha:]' '\n' | tr '[:upper:]' '[:lower:]' | grep -cx the)"
    grep -qx "$the the" "$root/said" || stop "$1: the quick start did not count the words"
    say "$1: installed, and the quick start ran"
)

[ "$(id -u)" -eq 0 ] || stop "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || stop "needs debootstrap: apt-get install debootstrap"
ls dist/stager-*.whl >/dev/null 2>&1 || stop "there is no wheel in dist: make wheel"
mkdir -p "$cache"
need_python_of_debian_11
# What a Python of its own needs, and curl's certificates for pip.
make_root bullseye debian11 ca-certificates,libssl1.1,libffi7,libsqlite3-0,zlib1g,libbz2-1.0,liblzma5,libuuid1
make_root bookworm debian12 ca-certificates,python3,python3-venv
check debian11 /opt/python3.11/bin/python3.11
check debian12 python3
