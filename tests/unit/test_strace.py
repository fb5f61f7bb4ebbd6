"""strace's lines read: positions that processes share, what is read twice, and what is unknown."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stager.adapters.strace import FileTrace, Trace, command_prefix


def traced(text: str) -> Trace:
    trace = Trace()
    trace.feed(line for line in text.strip().splitlines())
    return trace


def told(file: FileTrace) -> tuple[int, int, int]:
    return file.read_bytes, file.touched_bytes, file.sequential_bytes


def test_reads_move_on_and_lseek_and_pread_say_where() -> None:
    trace = traced("""
7 openat(AT_FDCWD</w>, "f", O_RDONLY) = 3</w/f>
7 read(3</w/f>, ""..., 100) = 100
7 read(3</w/f>, ""..., 100) = 50
7 read(3</w/f>, "", 100)   = 0
7 lseek(3</w/f>, 20, SEEK_SET) = 20
7 readv(3</w/f>, [{iov_base=""..., iov_len=10}], 1) = 10
7 pread64(3</w/f>, ""..., 5, 1000) = 5
7 preadv(3</w/f>, [{iov_base=""..., iov_len=5}], 1, 1005) = 5
7 preadv2(3</w/f>, [{iov_base=""..., iov_len=5}], 1, 1010, 0) = 5
7 read(3</w/f>, ""..., 10) = 10
7 read(3</w/f>, 0x7f, 10) = -1 EIO (Input/output error)
""")
    assert told(trace.files["/w/f"]) == (185, 165, 160)


def test_what_dup_and_fork_share_is_one_position_and_a_second_open_is_another() -> None:
    trace = traced("""
7 openat(AT_FDCWD</w>, "f", O_RDONLY) = 3</w/f>
7 dup2(3</w/f>, 0</dev/null>) = 0</w/f>
7 fcntl(3</w/f>, F_DUPFD_CLOEXEC, 0) = 9</w/f>
7 read(0</w/f>, ""..., 10) = 10
7 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 8
8 read(9</w/f>, ""..., 10) = 10
7 read(3</w/f>, ""..., 10) = 10
7 openat(AT_FDCWD</w>, "f", O_RDONLY) = 4</w/f>
7 read(4</w/f>, ""..., 5) = 5
""")
    assert told(trace.files["/w/f"]) == (35, 30, 35)


@pytest.mark.parametrize("files", ["CLONE_FILES|", ""])
def test_threads_share_descriptors_and_processes_do_not(files: str) -> None:
    trace = traced(f"""
7 openat(AT_FDCWD</w>, "f", O_RDONLY) = 3</w/f>
7 clone3({{flags=CLONE_VM|{files}CLONE_SIGHAND, stack_size=0x9000}}, 88) = 8
8 openat(AT_FDCWD</w>, "g", O_RDONLY) = 4</w/g>
8 read(4</w/g>, ""..., 10) = 10
7 read(4</w/g>, ""..., 10) = 10
""")
    assert trace.files["/w/g"].followed is bool(files)


def test_a_child_that_speaks_before_its_parent_tells_of_its_birth() -> None:
    trace = traced("""
7 openat(AT_FDCWD</w>, "f", O_RDONLY) = 3</w/f>
7 read(3</w/f>, ""..., 10) = 10
7 vfork( <unfinished ...>
8 read(3</w/f>,  <unfinished ...>
7 <... vfork resumed>)              = 8
8 <... read resumed>""..., 10) = 10
7 clone(flags=SIGCHLD <unfinished ...>
8 fork( <unfinished ...>
11 read(3</w/f>, ""..., 10) = 10
12 read(3</w/f>, ""..., 10) = 10
8 <... fork resumed>)               = 12
7 <... clone resumed>)              = 11
""")
    assert told(trace.files["/w/f"]) == (40, 40, 40) and not trace.unknown


def test_pids_in_another_namespace() -> None:
    trace = traced("""
7 openat(AT_FDCWD</w>, "f", O_RDONLY) = 3</w/f>
7 fork() = 2 /* 8 in strace's PID NS */
8 read(3</w/f>, ""..., 10) = 10
""")
    assert trace.files["/w/f"].followed and told(trace.files["/w/f"]) == (10, 10, 10)


def test_what_is_mapped_cloned_or_came_from_elsewhere_is_unknown() -> None:
    trace = traced("""
7 execve("./tool", ["./tool", "x"], 0x7ffd /* 3 vars */) = 0
7 openat(AT_FDCWD</w>, "m", O_RDONLY) = 3</w/m>
7 mmap(NULL, 3000, PROT_READ, MAP_SHARED, 3</w/m>, 0) = 0x7f341772c000
7 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f3417
7 ioctl(4</w/new>, BTRFS_IOC_CLONE or FICLONE, 5</w/cloned>) = 0
7 ioctl(6</w/plain>, TCGETS, 0x7fffb) = 0
7 read(9</w/inherited>, ""..., 10) = 10
""")
    files = trace.files
    assert files["/w/m"].mapped and not files["/w/cloned"].followed and not files["/w/inherited"].followed
    assert not trace.asynchronous and trace.executed == ["./tool"]
    assert "/w/plain" not in files or files["/w/plain"].followed
    assert traced("7 io_uring_setup(8, {flags=0}) = 3<anon_inode:[io_uring]>").asynchronous


def test_copies_by_the_kernel_are_reads_of_their_source() -> None:
    trace = traced("""
7 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a>
7 openat(AT_FDCWD</w>, "b", O_RDONLY) = 5</w/b>
7 copy_file_range(3</w/a>, NULL, 4</w/out>, NULL, 9223372035781033984, 0) = 100
7 copy_file_range(3</w/a>, [50] => [80], 4</w/out>, NULL, 30, 0) = 30
7 read(3</w/a>, ""..., 10) = 10
7 sendfile(1</w/out>, 5</w/b>, NULL, 70) = 70
7 sendfile(1</w/out>, 5</w/b>, [0] => [30], 30) = 30
7 splice(5</w/b>, NULL, 8<pipe:[1]>, NULL, 10, 0) = 10
""")
    assert told(trace.files["/w/a"]) == (140, 110, 100) and told(trace.files["/w/b"]) == (110, 80, 100)


def test_writing_moves_the_position_too() -> None:
    trace = traced("""
7 openat(AT_FDCWD</w>, "f", O_RDWR|O_CREAT, 0666) = 3</w/f>
7 write(3</w/f>, ""..., 100) = 100
7 read(3</w/f>, ""..., 10) = 10
""")
    assert trace.files["/w/f"].ranges == [(100, 110)]


def test_names_as_strace_writes_them() -> None:
    trace = traced(r"""
7 openat(AT_FDCWD</w>, "a, b) = 3\74x\76\n\303\244", O_RDONLY) = 3</w/a, b) = 3\74x\76\n\303\244>
7 read(3</w/a, b) = 3\74x\76\n\303\244>, ""..., 10) = 10
""")
    assert told(trace.files["/w/a, b) = 3<x>\nä"]) == (10, 10, 10)


JOB = """
import mmap, os, subprocess, threading
with open("half", "rb", buffering=0) as f:
    while f.tell() < 500_000:
        f.read(10_000)
for _ in range(2):
    open("twice", "rb").read()
with open("mapped", "rb") as f:
    mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:]
def look():
    f = os.open("thread", os.O_RDONLY)
    for at in range(9, 0, -1):
        os.pread(f, 100, at * 1000)
thread = threading.Thread(target=look)
thread.start()
thread.join()
shared = "(dd bs=1000 count=2 status=none; dd bs=1000 count=1 status=none) < shared > out"
subprocess.run(shared + "; cp copied out2; cat < half > /dev/null", shell=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_a_real_program_with_threads_and_children(tmp_path: Path) -> None:
    sizes = {"half": 1_000_000, "twice": 50_000, "mapped": 3000, "thread": 10_000, "shared": 5000, "copied": 7000}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "job.py").write_text(JOB)
    lines = tmp_path / "lines"
    prefix = command_prefix(shutil.which("strace") or "", str(lines))
    subprocess.run([*prefix, sys.executable, "job.py"], cwd=tmp_path, check=True)
    trace = Trace()
    trace.feed(lines.read_text().splitlines())
    seen = {name: trace.files[str(tmp_path.resolve() / name)] for name in sizes}
    assert told(seen["half"]) == (1_500_000, 1_000_000, 1_500_000)
    assert told(seen["twice"]) == (100_000, 50_000, 100_000)
    assert seen["mapped"].mapped and not any(seen[name].mapped for name in sizes if name != "mapped")
    assert told(seen["thread"]) == (900, 900, 0)
    assert told(seen["shared"]) == (3000, 3000, 3000)
    assert seen["copied"].touched_bytes == 7000 or not seen["copied"].followed
    assert not trace.unknown and not trace.asynchronous
