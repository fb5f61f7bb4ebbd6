#!/usr/bin/env bash
# The reaper's tests of control groups under a kernel in user mode, whose cgroup v2 has a memory
# controller: for machines that have none, on which these tests skip what needs it. As root. The
# guest sees this machine's files; what it writes is in memory, but for directories in /var/lib that
# the tests remove.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin"

if [ $$ -eq 1 ] && [ -n "${CGROUP_TESTS:-}" ]; then
    mount -t proc proc /proc
    mount -t sysfs sys /sys
    for place in /tmp /run /var/tmp; do mount -t tmpfs tmpfs "$place"; done
    mkdir -p /dev/shm
    mount -t tmpfs tmpfs /dev/shm
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # A job that is ended is the kernel's to tell of, at a length that its console takes minutes for.
    echo 1 >/proc/sys/kernel/printk
    "$CGROUP_TESTS" grouped:: --test-threads=1 --nocapture 2>&1 || true
    halt -f
fi

cd "$(dirname "$0")/.."
if ! command -v linux.uml >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "cgroup_tests: run it as root, with a kernel in user mode: apt-get install user-mode-linux" >&2
    exit 1
fi
tests="$(cargo test --profile quick --locked -p stager-reaper --test reaper --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')"
[ -x "$tests" ] || { echo "cgroup_tests: the tests were not built" >&2 && exit 1; }
said="$(mktemp)"
trap 'rm -f "$said"' EXIT
timeout 600 linux.uml mem=1024M rootfstype=hostfs rootflags=/ rw quiet init="$PWD/scripts/cgroup_tests.sh" \
    "CGROUP_TESTS=$(realpath "$tests")" con=null con0=null,fd:1 </dev/null >"$said" 2>&1 || true
grep -a '^test \|^skipped' "$said" || true
if grep -aq '^skipped\|FAILED' "$said" || ! grep -aq '^test result: ok\. [1-9]' "$said"; then
    tail -40 "$said" >&2
    exit 1
fi
