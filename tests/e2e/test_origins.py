"""Workflows over every kind of origin, through the real `stager`: finals right byte by byte, what is wrong said before anything starts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.origin_rig import (
    Bucket,
    known_hosts_of,
    methods,
    s3_env,
    s3_origin,
    send_finals_to,
    ssh_origin,
    wait_for_bytes,
    wait_for_line,
    wait_for_waiting,
)
from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd, make_key, running_agent
from tests.testbed.stager import Stager

ODD_NAMES = (
    "two words.txt",
    "it's.txt",
    'say "so".txt',
    "$(touch owned).txt",
    "`id`;&|.txt",
    "größe-日本.txt",
    "-n",
    "[x]*.txt",
    "100%41.txt",
    "empty",
)


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


@pytest.fixture
def letters(short_dir: Path) -> Letters:
    return Letters(short_dir / "wf", count=2, size_bytes=150_000, pause_s=0)


@pytest.fixture
def store(s3: S3, bucket: str, stager: Stager) -> Bucket:
    stager.env = s3_env(s3)
    return Bucket(s3.client(), bucket)


def finals_of(stager: Stager) -> set[str]:
    return methods(stager.json("ledger", "--finals"))


# Each kind of origin.


def test_sftp_with_a_shell(stager: Stager, letters: Letters, sshd: Sshd) -> None:
    letters.make(sshd.data / "d", ssh_origin(sshd, sshd.data / "d"))
    stager.run("submit", letters.workflow)
    letters.check(sshd.data / "d")
    assert finals_of(stager) == {"remote_checksum"}


def test_sftp_without_a_shell_is_read_back(stager: Stager, letters: Letters, sftp_only: Sshd) -> None:
    letters.make(sftp_only.data / "d", ssh_origin(sftp_only, sftp_only.data / "d"))
    stager.run("submit", letters.workflow)
    letters.check(sftp_only.data / "d")
    assert finals_of(stager) == {"readback"}


def test_sshfs_moves_its_bytes_over_sftp(stager: Stager, letters: Letters, sshd: Sshd) -> None:
    letters.make(sshd.data / "d", ssh_origin(sshd, sshd.data / "d", kind="sshfs", mount_point="/nowhere"))
    letters.workflow.write_text(letters.workflow.read_text() + "io_hints: {digest: {read_fraction: 0.01}}\n")
    assert "mount_point is not used" in stager.run("validate", letters.workflow).stdout
    planned = json.loads(stager.run("plan", letters.workflow, "--json").stdout)
    assert {file["access"] for file in planned["files"]} == {"link"}, "nothing serves direct reads"
    stager.run("submit", letters.workflow)
    letters.check(sshd.data / "d")
    assert finals_of(stager) == {"remote_checksum"}


def test_s3(stager: Stager, letters: Letters, s3: S3, store: Bucket, short_dir: Path) -> None:
    letters.make(short_dir / "made", s3_origin(s3, store.name))
    store.put_tree(short_dir / "made")
    stager.run("submit", letters.workflow)
    letters.check(store.take_home(short_dir / "seen"))
    assert finals_of(stager) <= {"readback", "origin_checksum"}


def test_inputs_from_sftp_and_finals_to_s3(stager: Stager, letters: Letters, sshd: Sshd, s3: S3, store: Bucket, short_dir: Path) -> None:
    letters.make(sshd.data / "d", ssh_origin(sshd, sshd.data / "d"))
    send_finals_to(letters, "cloud", s3_origin(s3, store.name))
    stager.run("submit", letters.workflow)
    letters.check(store.take_home(short_dir / "seen"))
    assert not (sshd.data / "d" / "all.txt").exists()
    again = stager.run("submit", letters.workflow)
    assert "fetched  0 B" in again.stdout and "there already with the same content" in again.stdout


# How one gets in: host keys, ssh's own configuration, the agent.


def test_an_unknown_host_key_stops_before_anything_starts(stager: Stager, letters: Letters, sshd: Sshd, short_dir: Path) -> None:
    (short_dir / "empty").touch()
    letters.make(sshd.data / "d", ssh_origin(sshd, sshd.data / "d", known_hosts=str(short_dir / "empty")))
    done = stager.run("submit", letters.workflow, code=7)
    assert len(done.stderr.strip().splitlines()) == 1 and "host key" in done.stderr and f"{sshd.port}" in done.stderr
    assert stager.scheduler_pid() is None and not letters.trace.exists() and not stager.state_dir.exists()


def test_a_changed_host_key_stops_before_anything_starts_even_where_only_finals_go(
    stager: Stager, letters: Letters, sshd: Sshd, short_dir: Path
) -> None:
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    send_finals_to(letters, "lab", ssh_origin(sshd, sshd.data / "d"))
    sshd.change_host_key()
    done = stager.run("submit", letters.workflow, code=7)
    assert len(done.stderr.strip().splitlines()) == 1 and "host key" in done.stderr and "is on file" in done.stderr
    assert stager.scheduler_pid() is None and not letters.trace.exists() and not stager.state_dir.exists()


def test_ssh_config_is_honoured(stager: Stager, letters: Letters, sshd: Sshd) -> None:
    config = stager.home / ".ssh" / "config"
    config.parent.mkdir(parents=True, mode=0o700)
    config.write_text(sshd.ssh_config_text("lab"))
    stager.env = {"STAGER_SSH_CONFIG": str(config)}
    letters.make(sshd.data / "d", f"sftp://lab{sshd.data / 'd'}")
    stager.run("submit", letters.workflow)
    letters.check(sshd.data / "d")


def test_the_ssh_agent_is_used(stager: Stager, letters: Letters, sshd: Sshd, short_dir: Path) -> None:
    letters.make(sshd.data / "d", ssh_origin(sshd, sshd.data / "d", credentials="agent"))
    with running_agent(short_dir, sshd.identity_file) as socket:
        stager.env = {"SSH_AUTH_SOCK": str(socket)}
        stager.run("submit", letters.workflow)
    letters.check(sshd.data / "d")


def test_check_says_all_that_would_stop_a_run_at_once(
    stager: Stager, sshd: Sshd, s3: S3, store: Bucket, short_dir: Path, tiny_disk: Callable[[int], Path]
) -> None:
    (short_dir / "empty").touch()
    stranger = make_key(short_dir / "stranger")
    full, frozen = tiny_disk(4), tiny_disk(1)
    subprocess.run(["mount", "-o", "remount,ro", str(frozen)], check=True)
    stager.env = s3_env(s3) | {"BAD_ACCESS_KEY_ID": s3.access_key, "BAD_SECRET_ACCESS_KEY": "not-the-secret"}
    origins = {
        "unknown": ssh_origin(sshd, sshd.data, known_hosts=str(short_dir / "empty")),
        "wrongkey": ssh_origin(sshd, sshd.data, credentials=f"key:{stranger}"),
        "nobucket": s3_origin(s3, "no-such-bucket"),
        "badsecret": s3_origin(s3, store.name, credentials="env:BAD"),
        "noenv": s3_origin(s3, store.name, credentials="env:UNSET"),
        "full": f"file:{full}",
        "frozen": f"file:{frozen}",
        "good": ssh_origin(sshd, sshd.data),
    }
    if not s3.checks_credentials:
        del origins["badsecret"]
    outputs = ", ".join(f"{name}.txt: {{to: '{name}:out/{name}.txt', size: 20 MB}}" for name in origins)
    workflow = short_dir / "w.yml"
    listed = "".join(f"  {name}: {text}\n" for name, text in origins.items())
    workflow.write_text(
        f"stager: 1\norigins:\n{listed}jobs:\n  a: {{run: [no-such-program, x], inputs: ['good:gone.txt'], outputs: {{{outputs}}}}}\n"
    )
    done = stager.run("check", workflow, "--json", code=3)
    findings = json.loads(done.stdout)
    said = {
        about: "; ".join(each["message"] for each in findings if each["about"] == about and not each["good"])
        for about in {each["about"] for each in findings}
    }
    expected = {
        "inputs": "gone.txt",
        "origin unknown": "host key",
        "origin wrongkey": "key",
        "origin nobucket": "bucket",
        "origin badsecret": "credentials",
        "origin noenv": "UNSET_ACCESS_KEY_ID",
        "room": str(full),
        "origin frozen": "read-only",
        "programs": "no-such-program",
    }
    if not s3.checks_credentials:
        del expected["origin badsecret"]
    assert {about: word in said.get(about, "") for about, word in expected.items()} == dict.fromkeys(expected, True), said
    assert not said["origin good"] and not stager.living()
    assert list(full.iterdir()) == [] and not (sshd.data / "out").exists(), "check left something behind"


def test_every_directory_of_the_finals_is_looked_at_not_the_first_alone(
    stager: Stager, short_dir: Path, tiny_disk: Callable[[int], Path]
) -> None:
    frozen = tiny_disk(1)
    subprocess.run(["mount", "-o", "remount,ro", str(frozen)], check=True)
    workflow = short_dir / "w.yml"
    outputs = f"{{x: 'o:good/x', y: 'o:{frozen.relative_to(short_dir)}/y'}}"
    workflow.write_text(f"stager: 1\norigins:\n  o: file:{short_dir}\njobs:\n  a: {{run: echo hello, outputs: {outputs}}}\n")
    assert "read-only" in stager.run("check", workflow, code=3).stdout
    assert "read-only" in stager.run("submit", workflow, code=7).stderr and not stager.living()


# What files may be like.


def odd_workflow(short_dir: Path, origin: str) -> Path:
    workflow = short_dir / "odd.yml"
    workflow.write_text(
        f"stager: 1\nname: odd\norigins:\n  o: {origin}\nfiles: {{odd: 'o:in dir/*'}}\njobs:\n"
        '  copy:\n    foreach: {f: odd}\n    run: cat ./{f} > "out/"{f.name}\n    inputs: ["{f}"]\n'
        '    outputs: {"out/{f.name}": "o:out dir/{f.name}"}\n'
    )
    return workflow


def odd_contents() -> dict[str, bytes]:
    return {name: b"" if name == "empty" else name.encode() * 1000 for name in ODD_NAMES}


def test_odd_names_and_empty_files_over_sftp(stager: Stager, sshd: Sshd, short_dir: Path) -> None:
    place = sshd.data / "a b"
    (place / "in dir").mkdir(parents=True)
    for name, content in odd_contents().items():
        (place / "in dir" / name).write_bytes(content)
    stager.run("submit", odd_workflow(short_dir, ssh_origin(sshd, Path(str(place).replace(" ", "%20")))))
    assert {path.name: path.read_bytes() for path in (place / "out dir").iterdir()} == odd_contents()
    # What ended is cleared away meanwhile, which `walk` does not mind.
    assert "owned" not in {name for _, directories, files in os.walk(short_dir) for name in (*directories, *files)}


def test_odd_names_and_empty_files_over_s3(stager: Stager, s3: S3, store: Bucket, short_dir: Path) -> None:
    store.prefix = "a b"
    for name, content in odd_contents().items():
        store.put(f"in dir/{name}", content)
    stager.run("submit", odd_workflow(short_dir, s3_origin(s3, store.name, "a%20b")))
    assert {name.removeprefix("out dir/"): store.get(name) for name in store.names("out dir/")} == odd_contents()


def reading(directory: Path, origin: str, inputs: str) -> Path:
    """A workflow that would show in its final which inputs it was given."""
    workflow = directory / "w.yml"
    (directory / "out").mkdir()
    workflow.write_text(
        f"stager: 1\nname: reading\norigins:\n  o: {origin}\n  out: file:{directory}/out\njobs:\n"
        f"  a:\n    run: find . -type f,l -name '*.dat' | sort > seen\n    inputs: {inputs}\n    outputs: {{seen: 'out:seen'}}\n"
    )
    return workflow


def links_out(directory: Path) -> Path:
    """`d` with one file and three links to files beside it."""
    for number in range(3):
        (directory / "real").mkdir(parents=True, exist_ok=True)
        (directory / "d").mkdir(exist_ok=True)
        (directory / "real" / f"{number}.dat").write_text(f"{number}")
        (directory / "d" / f"{number}.dat").symlink_to(f"../real/{number}.dat")
    (directory / "d" / "3.dat").write_text("3")
    return directory / "d"


def test_a_pattern_never_leaves_a_link_out_of_its_origin_without_a_word(stager: Stager, short_dir: Path) -> None:
    place = links_out(short_dir / "data")
    workflow = reading(short_dir, f"file:{place}", "['o:*.dat']")
    said = stager.run("submit", workflow, code=2).stderr
    assert f"{workflow}:9:14: jobs.a.inputs[0]: " in said and all(f"'o:{number}.dat'" in said for number in range(3)), said
    assert "leads out of the origin" in said and "'o:3.dat'" not in said and not stager.living()


def test_over_sftp_links_are_followed_and_what_cannot_be_is_named(stager: Stager, sshd: Sshd, short_dir: Path) -> None:
    place = links_out(sshd.data)
    workflow = reading(short_dir, ssh_origin(sshd, place), "['o:*.dat']")
    stager.run("submit", workflow)
    assert (short_dir / "out" / "seen").read_text().split() == [f"./{number}.dat" for number in range(4)]
    (place / "gone.dat").symlink_to("nowhere")
    (place / "dir.dat").symlink_to("../real")
    os.mkfifo(place / "pipe.dat")
    (place / os.fsdecode(b"latin\xff.dat")).write_text("x")
    said = stager.run("submit", workflow, code=2).stderr
    reasons = {"gone.dat": "leads nowhere", "pipe.dat": "pipe", "latin\ufffd.dat": "not UTF-8"}
    assert all(f"'o:{name}'" in said and reason in said for name, reason in reasons.items()), said
    assert "dir.dat" not in said, "a linked directory is passed over as a directory is"
    workflow.write_text(workflow.read_text().replace("o:*.dat", "o:*.dat/1.dat"))
    below = stager.run("submit", workflow, code=2).stderr
    assert "'o:dir.dat'" in below and "to a directory" in below


def test_every_link_that_is_named_as_an_input_and_leads_out_is_told_at_once(stager: Stager, short_dir: Path) -> None:
    place = links_out(short_dir / "data")
    (place / "link").symlink_to("/etc/passwd")
    workflow = reading(short_dir, f"file:{place}", "['o:link', 'o:0.dat', 'o:3.dat']")
    said = stager.run("submit", workflow, code=2).stderr.splitlines()
    assert [line.partition(" input ")[0].removeprefix("stager: ") for line in said if "leads out of" in line] == [
        f"{workflow}:9:14: jobs.a.inputs[0]:",
        f"{workflow}:9:24: jobs.a.inputs[1]:",
    ], said
    assert not any("credentials" in line for line in said) and not stager.living()


def test_a_destination_behind_a_link_is_called_so(stager: Stager, short_dir: Path) -> None:
    (short_dir / "data" / "real").mkdir(parents=True)
    (short_dir / "data" / "dirlink").symlink_to("real")
    workflow = short_dir / "w.yml"
    job = "{run: echo x, outputs: {x: 'o:dirlink/x'}}"
    workflow.write_text(f"stager: 1\norigins: {{o: 'file:{short_dir}/data'}}\njobs: {{a: {job}}}\n")
    said = stager.run("submit", workflow, code=2).stderr
    assert '"dirlink"' in said and "symbolic link" in said and "does not exist" not in said and not stager.living(), said


def test_a_name_that_s3_cannot_hold_is_refused_before_anything_starts(stager: Stager, s3: S3, store: Bucket, short_dir: Path) -> None:
    workflow = short_dir / "w.yml"
    outputs = '{"o new\\nline": "cloud:"}'
    workflow.write_text(
        f"stager: 1\norigins:\n  cloud: {s3_origin(s3, store.name)}\njobs:\n  a: {{run: 'touch {short_dir}/ran', outputs: {outputs}}}\n"
    )
    assert "control character" in stager.run("validate", workflow, code=2).stderr
    assert "control character" in stager.run("submit", workflow, code=2).stderr
    assert not (short_dir / "ran").exists() and not stager.living()


TREE = (
    "mkdir -p results/sub/deep results/void && echo a > results/a.txt && : > results/sub/deep/zero"
    " && printf '#!/bin/sh\\n' > results/sub/go.sh && chmod +x results/sub/go.sh"
)


def test_directories_as_finals_over_file_sftp_and_s3(stager: Stager, sshd: Sshd, s3: S3, store: Bucket, short_dir: Path) -> None:
    workflow = short_dir / "tree.yml"
    (short_dir / "local").mkdir()
    origins = {"local": f"file:{short_dir / 'local'}", "lab": ssh_origin(sshd, sshd.data), "cloud": s3_origin(s3, store.name, "trees")}
    listed = "".join(f"  {name}: {text}\n" for name, text in origins.items())
    jobs = "".join(
        f"  make_{name}:\n    run: |\n      {TREE.replace('results', name)}\n    outputs: [{{dir: {name}/, to: '{name}:res/{name}'}}]\n"
        for name in origins
    )
    workflow.write_text(f"stager: 1\nname: tree\norigins:\n{listed}jobs:\n{jobs}")
    stager.run("submit", workflow)
    contents = {"a.txt": b"a\n", "sub/deep/zero": b"", "sub/go.sh": b"#!/bin/sh\n"}
    for top in (short_dir / "local" / "res" / "local", sshd.data / "res" / "lab"):
        assert {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()} == contents
        assert (top / "void").is_dir() and not list((top / "void").iterdir())
        assert {path.name for path in top.rglob("*") if path.is_file() and path.stat().st_mode & 0o111} == {"go.sh"}
    store.prefix = "trees/res/cloud"
    assert {name: store.get(name) for name in store.names()} == contents


# Lines that fail, rights that come late.


@pytest.fixture
def line(sshd: Sshd, link: Callable[..., Link]) -> Link:
    """So slow that a fetch can be met on its way, on a busy machine too."""
    return link(sshd.port, bytes_per_s=150_000)


@pytest.fixture
def far(short_dir: Path, sshd: Sshd, line: Link) -> str:
    """The ssh server at the other end of it."""
    known = known_hosts_of(sshd, line.port, short_dir / "known_hosts")
    return ssh_origin(sshd, sshd.data / "d", port=line.port, known_hosts=str(known))


def inputs_of(letters: Letters) -> list[str]:
    return [f"in/{number}.txt" for number in range(letters.count)]


def test_a_line_that_goes_down_and_comes_back_costs_time_only(stager: Stager, sshd: Sshd, line: Link, far: str, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=3, size_bytes=1_200_000, pause_s=0)
    letters.make(sshd.data / "d", far)
    run = stager.submit(letters.workflow)
    wait_for_bytes(stager, run)
    line.go_down()
    wait_for_line(stager, run, inputs_of(letters), "tried again", deadline_s=100)
    line.come_up()
    line.bytes_per_s = None
    stager.run("wait", run)
    letters.check(sshd.data / "d")
    assert set(letters.ended().values()) == {1}


def test_an_origin_that_is_away_longer_than_its_tries_is_waited_for_and_the_status_says_so(
    stager: Stager, sshd: Sshd, line: Link, far: str, short_dir: Path
) -> None:
    """A fetch and an upload are under way when it goes."""
    (sshd.data / "d").mkdir()
    # A minute for the fetch and half of one for the upload, whichever begins first, and however late on a busy machine.
    line.bytes_per_s = 400_000
    content = bytes(range(256)) * 100_000
    (sshd.data / "d" / "in").write_bytes(content)
    workflow = short_dir / "w.yml"
    jobs = "  make: {run: head -c 12000000 /dev/urandom > made, outputs: {made: 'far:made'}}\n"
    jobs += "  use: {run: cat in > out, inputs: ['far:in'], outputs: {out: 'far:out'}}\n"
    workflow.write_text(f"stager: 1\nname: away\norigins:\n  far: {far}\njobs:\n{jobs}")
    run = stager.submit(workflow)
    wait_for_bytes(stager, run, "fetch", "upload")
    line.go_down()
    told = wait_for_waiting(stager, run, since_s=20.0)
    assert (told.origin, told.fetches, told.uploads) == ("far", 1, 1)
    assert "unreachable for" in told.message and "2 transfers wait" in told.message
    assert "origin far: unreachable for" in stager.run("status", run).stdout
    line.come_up()
    line.bytes_per_s = None
    stager.run("wait", run)
    assert (sshd.data / "d" / "out").read_bytes() == content and (sshd.data / "d" / "made").stat().st_size == 12_000_000
    assert stager.json("status", run)["waiting"] == []


@pytest.mark.slow
def test_a_line_that_goes_dead_without_a_word_is_given_up_and_taken_anew(
    stager: Stager, sshd: Sshd, line: Link, far: str, short_dir: Path
) -> None:
    letters = Letters(short_dir / "wf", count=2, size_bytes=1_200_000, pause_s=0)
    letters.make(sshd.data / "d", far)
    run = stager.submit(letters.workflow)
    wait_for_bytes(stager, run)
    line.stall()
    wait_for_line(stager, run, inputs_of(letters), "tried again", deadline_s=100)
    line.cut()
    line.flow()
    line.bytes_per_s = None
    stager.run("wait", run)
    letters.check(sshd.data / "d")


def test_wrong_credentials_stop_before_anything_starts(stager: Stager, letters: Letters, s3: S3, store: Bucket, short_dir: Path) -> None:
    if not s3.checks_credentials:
        pytest.skip("the S3 server here (moto) checks no credentials")
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    send_finals_to(letters, "cloud", s3_origin(s3, store.name))
    stager.env = s3_env(s3) | {"LAB_SECRET_ACCESS_KEY": "an-old-one"}
    done = stager.run("submit", letters.workflow, code=7)
    assert len(done.stderr.strip().splitlines()) == 1 and "credentials" in done.stderr and "an-old-one" not in done.stderr
    assert stager.scheduler_pid() is None and not letters.trace.exists()


def test_rights_that_end_during_a_run_stop_what_needs_them_and_resume_goes_on_with_new_ones(
    stager: Stager, sshd: Sshd, line: Link, far: str, short_dir: Path
) -> None:
    (short_dir / "near").mkdir()
    (sshd.data / "d").mkdir()
    contents = {number: bytes([number]) * 1_500_000 for number in range(2)}
    for number, content in contents.items():
        (short_dir / "near" / f"{number}.in").write_bytes(content)
        (sshd.data / "d" / f"{number}.in").write_bytes(content)
    workflow = short_dir / "w.yml"
    job = "{{foreach: {{n: [0, 1]}}, run: 'cat *.in > {{n}}.{0} && echo {0} {{n}} >> {1}', isolate: off, inputs: ['{0}:{{n}}.in'],"
    job += " outputs: {{'{{n}}.{0}': '{0}:{{n}}.{0}'}}}}"
    jobs = "".join(f"  use_{name}: {job.format(name, short_dir / 'ran')}\n" for name in ("near", "far"))
    workflow.write_text(f"stager: 1\nname: rights\norigins:\n  near: file:{short_dir / 'near'}\n  far: {far}\njobs:\n{jobs}")
    run = stager.submit(workflow)
    wait_for_bytes(stager, run)
    keys = (sshd.directory / "authorized_keys").read_text()
    (sshd.directory / "authorized_keys").write_text("")
    line.cut()
    line.bytes_per_s = None
    ended = stager.run("wait", run, code=1)
    assert "127.0.0.1" in ended.stderr and "key" in ended.stderr
    assert stager.json("status", run)["jobs"]["done"] >= 2 and stager.run("resume", run, code=1).stderr
    assert all((short_dir / "near" / f"{number}.near").read_bytes() == content for number, content in contents.items())
    (sshd.directory / "authorized_keys").write_text(keys)
    stager.run("resume", run)
    assert all((sshd.data / "d" / f"{number}.far").read_bytes() == content for number, content in contents.items())
    ran = (short_dir / "ran").read_text().split("\n")
    assert sorted(filter(None, ran)) == ["far 0", "far 1", "near 0", "near 1"], "a finished job ran again"
