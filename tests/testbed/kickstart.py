"""Records as pegasus-kickstart 5 writes them (version 3), of a diamond that was run: what stands in them of times, memory, I/O and files.

May know: kickstart's form. One rule: the parts that a real record has and nobody reads are there too, in small: a reader must pass them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

RECORD = """- invocation: True
  version: 3.0
  start: {start}
  duration: {long}
  transformation: "{transformation}"
  derivation: "{derivation}"
  resource: "local"
  wf-label: "diamond"
  hostaddr: 192.0.2.2
  pid: 9833
  umask: 0o0022
  mainjob:
    start: {start}
    duration: {wall_s}
    pid: 9834
    usage:
      utime: {user_s}
      stime: {system_s}
      maxrss: {memory_kib}
      minflt: 412
      nvcsw: 17
    status:
      raw: 0
      regular_exitcode: 0
    executable:
      file_name: {program}
      mode: 0o100755
      size: 161
      mtime: 2026-11-20T09:33:15+00:00
    argument_vector:
      - "1"
      - "f.a"
    procs:
{procs}  jobids:
  cwd: /scratch/w/scratch/r7
  usage:
    utime: 0.000
    stime: 0.006
    maxrss: 2288
  machine:
    page-size: 4096
    cpu_count: 2
    load_min1: 5.49
  files:
{files}    stdin:
      file_name: /dev/null
      mode: 0o20666
      size: 0
    stdout:
      temporary_name: /tmp/ks.out.38bHwR
      descriptor: 3
      size: 0
    stderr:
      temporary_name: /tmp/ks.err.Hl3ejK
      descriptor: 4
      size: 40
      data_truncated: false
      data: |
        2026-11-20 09:52:22,006    INFO:  loaded

"""
PROCESS = """      {pid}:
        ppid: {parent}
        pid: {pid}
        exe: {program}
        start: 1795168344.441342
        stop: 1795168344.450185
        utime: 0.005
        rsspeak: 3112
        rchar: {read}
        wchar: {written}
        rbytes: 0
        wbytes: {written}
        syscr: 181
"""
# What stands within the YAML with -z and -Z.
LINES = """        cmd:
/usr/bin/python3 -c \\"d=open('in.bin','rb').read(); open('out.bin','wb').write(d*2)\\"
        <file name="/scratch/in.bin" bread="3000000" nread="1" bwrite="0" nwrite="0" bseek="0" nseek="0" size="3000000"/>
        <file name="/scratch/out.bin" bread="0" nread="0" bwrite="6000000" nwrite="1" bseek="0" nseek="0" size="6000000"/>
"""
FILE = """    {lfn}:
      lfn: "{lfn}"
      file_name: /scratch/w/scratch/r7/{lfn}
      mode: 0o100644
      size: {size}
      nlink: 1
      mtime: 2026-11-20T09:52:24+00:00
      user: root
"""
MADE = "      output: True\n      sha256: {digest}\n      checksum_timing: 0.00\n"
MISSING = '    f.a:\n      error: 2\n      lfn: "f.a"\n      file_name: f.a\n'


class Ran(NamedTuple):
    transformation: str
    derivation: str
    start: str
    wall_s: str
    cpu_s: tuple[str, str]
    memory_kib: int
    io: tuple[int, int]
    inputs: dict[str, int]
    outputs: dict[str, int]


RAN = {
    "preprocess_pre": Ran(
        *("preprocess", "pre", "2026-11-20T09:52:24.439+00:00", "0.011", ("0.004", "0.005"), 2980, (1038114, 1002000)),
        *({"f.a": 1000}, {"f.b2": 501000, "f.b1": 501000}),
    ),
    "findrange_fr1": Ran(
        *("findrange", "fr1", "2026-11-20T09:52:24.847+00:00", "0.010", ("0.005", "0.001"), 3004, (1023162, 1001000)),
        *({"f.b1": 501000}, {"f.c1": 1001000}),
    ),
    "analyze_an": Ran(
        *("analyze", "an", "2026-11-20T09:52:38.672+00:00", "0.015", ("0.004", "0.002"), 2892, (2524162, 2502000)),
        *({"f.c2": 1001000, "f.c1": 1001000}, {"f.d": 2502000}),
    ),
}


def write_record(directory: Path, job: str) -> None:
    (directory / f"{job}.out.000").write_text(record(RAN[job]))


def write_records(directory: Path) -> None:
    for job in RAN:
        write_record(directory, job)
    staged = Ran("pegasus::transfer", "null", "2026-11-20T09:52:21.933+00:00", "2.114", ("0.087", "0.018"), 26024, (0, 0), {}, {})
    (directory / "stage_in_remote_local_0_0.out.000").write_text(record(staged, traced=False, missing=True))
    copied = Ran("t", "x", "2026-11-20T09:34:24.852+00:00", "0.031", ("0.005", "0.011"), 16960, (3046718, 6000000), {}, {})
    for name, more in (("ks-t.yml", ""), ("ks-z.yml", LINES), ("ks-Z.yml", LINES)):
        (directory / name).write_text(record(copied, more=more))


def record(ran: Ran, *, traced: bool = True, missing: bool = False, more: str = "") -> str:
    """`more`: lines of the first process that are no YAML. `missing`: its input was named and was not there."""
    read, written = ran.io
    procs = PROCESS.format(pid=9834, parent=9833, program="/usr/bin/bash", read=read, written=written) + more
    procs += PROCESS.format(pid=9835, parent=9834, program="/usr/bin/cat", read=7976, written=1000)
    files = "".join(FILE.format(lfn=lfn, size=size) for lfn, size in ran.inputs.items())
    files += "".join(FILE.format(lfn=lfn, size=size) + MADE.format(digest="67b2" * 16) for lfn, size in ran.outputs.items())
    user_s, system_s = ran.cpu_s
    return RECORD.format(
        **{name: value for name, value in ran._asdict().items() if isinstance(value, str | int)},
        long=ran.wall_s,
        user_s=user_s,
        system_s=system_s,
        program="/scratch/exe.sh",
        procs=procs if traced else "",
        files=files + (MISSING if missing else ""),
    )
