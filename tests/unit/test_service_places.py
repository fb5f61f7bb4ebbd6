"""Settings and the state directory: where things are, who may, and what is refused."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from stager.adapters.node_place import NodePlace
from stager.model.errors import Denied, InvalidInput, Refused
from stager.planning.policy import Limits
from stager.service.live_nodes import has_stores, limits_of, this_host
from stager.service.settings import read_settings
from stager.service.state_dir import LockHeld, StateDir, file_system_of


def test_what_is_given_wins_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    (tmp_path / "config" / "stager").mkdir(parents=True)
    (tmp_path / "config" / "stager" / "config.toml").write_text('cores = 3\ncapacity = "3 GB"\nidle_exit = "3 s"\nscrub_rate = 0\n')
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "STAGER_CAPACITY": "2 GB"}
    found = read_settings(cores=4, environ=environ)
    assert (found.cores, found.capacity_bytes, found.idle_exit_s) == (4, 2_000_000_000, 3.0)
    assert (found.scrub_bytes_per_s, found.scrub_every_s) == (0, 7 * 86_400)
    assert found.state_dir == tmp_path / ".local/state/stager"
    assert read_settings(environ={**environ, "XDG_STATE_HOME": "/state"}).state_dir == Path("/state/stager")
    assert read_settings(environ={**environ, "STAGER_STATE_DIR": "~/s"}).state_dir == tmp_path / "s"
    assert read_settings(state_dir=Path("/a/../b"), environ=environ).state_dir == Path("/b")


def test_a_plan_made_twice_has_the_same_capacity(tmp_path: Path) -> None:
    first = read_settings(environ={"HOME": str(tmp_path)}).capacity_bytes
    assert first == int(str(first)[0]) * 10 ** (len(str(first)) - 1)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("STAGER_CORES", "two", "cores"),
        ("STAGER_CORES", "0", "cores"),
        ("STAGER_CORES", "²", "cores"),
        ("STAGER_CAPACITY", "big", "capacity"),
        ("STAGER_CAPACITY", "0", "capacity"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=word):
        read_settings(environ={"HOME": str(tmp_path), name: value})


def test_no_capacity_at_all_is_not_taken_for_the_usual_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a capacity of 0"):
        read_settings(capacity_bytes=0, environ={"HOME": str(tmp_path)})


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".config" / "stager").mkdir(parents=True)
    file = tmp_path / ".config" / "stager" / "config.toml"
    bad = {b"core = 3": "unknown key 'core'", b"cores =": "not valid TOML", b"# caf\xe9": r"config.toml is not UTF-8 \(at byte 5\)"}
    for text, said in bad.items():
        file.write_bytes(text)
        with pytest.raises(InvalidInput, match=said):
            read_settings(environ={"HOME": str(tmp_path)})


def test_the_scheduler_is_started_with_what_was_decided() -> None:
    words = read_settings(
        state_dir=Path("/s"),
        capacity_bytes=5,
        cores=2,
        memory_bytes=7,
        idle_exit_s=1.5,
        scrub_bytes_per_s=0,
        scrub_every_s=60.0,
        keep_failed_bytes=9,
        environ={},
    ).scheduler_arguments()
    kept = ["--scrub-bytes-per-s", "0", "--scrub-every-s", "60", "--keep-failed-bytes", "9"]
    assert words == ["--capacity", "5", "--cores", "2", "--idle-exit-s", "1.5", *kept, "--memory", "7"]


NODE = "n1=127.0.0.1:7411@/t/one"


def test_nodes_are_named_on_the_command_line_or_by_a_variable_or_in_the_file(tmp_path: Path) -> None:
    (tmp_path / ".config" / "stager").mkdir(parents=True)
    (tmp_path / ".config" / "stager" / "config.toml").write_text('[nodes]\nn3 = "[::1]:3@~/t"\nn2 = "127.0.0.1:2@/t"\n')
    environ = {"HOME": str(tmp_path)}
    from_file = read_settings(environ=environ)
    assert [str(place) for place in from_file.nodes] == ["n2=127.0.0.1:2@/t", f"n3=[::1]:3@{tmp_path}/t"]
    assert from_file.nodes[1].host_and_port == ("::1", 3)
    by_variable = read_settings(environ={**environ, "STAGER_NODES": f"{NODE}  n4=127.0.0.1:4@/u"})
    assert [place.node_id for place in by_variable.nodes] == ["n1", "n4"]
    given = read_settings(nodes=[NODE], environ={**environ, "STAGER_NODES": "n4=127.0.0.1:4@/u"})
    assert given.nodes == (NodePlace("n1", "127.0.0.1:7411", Path("/t/one")),)
    assert given.scheduler_arguments()[-2:] == ["--node", NODE] and not read_settings(environ={"HOME": "/none"}).nodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1", "says not where the node n1 is"),
        ("n1=127.0.0.1:0@/t", "says not where"),
        ("n1=a..b:1", "is no host"),
        ("n1=" + "a" * 64 + ".example:1", "is no host"),
        ("n1=127.0.0.1:1@t", "says not where"),
        ("n1=here:1@/t", "no IP address"),
        ("node0=127.0.0.1:1@/t", "starts itself"),
        ("n/1=127.0.0.1:1@/t", "no name of an I/O node"),
        (f"{NODE} {NODE}", "two I/O nodes are named 'n1'"),
        ("n1=10.0.0.1:1@/t", "on another machine .* leave @TOKEN_FILE out"),
        ("n1=10.0.0.1:1@", "says not where"),
        ("n1=a_b:1", "no host"),
        ("n1=10.0.0.1:1 n2=127.0.0.1:1@/t", r"do not \(n2\)"),
    ],
)
def test_a_node_that_cannot_be_used_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises((InvalidInput, Refused), match=said):
        read_settings(environ={"STAGER_NODES": text})


def test_cores_and_memory_are_divided_among_the_nodes_since_all_jobs_run_here() -> None:
    both = read_settings(cores=5, memory_bytes=10, nodes=[NODE], environ={})
    assert limits_of(both) == Limits(cores=2, memory_bytes=5)
    assert limits_of(read_settings(cores=1, nodes=[NODE], environ={})) == Limits(cores=1)
    assert limits_of(read_settings(cores=5, environ={})) == Limits(cores=5)


def test_nodes_of_other_hosts_store_only_and_jobs_have_this_machine_alone() -> None:
    far = read_settings(cores=5, memory_bytes=10, nodes=["n1=10.0.0.1:7411", "n2=io2.example.org:7411"], environ={})
    assert [str(place) for place in far.nodes] == ["n1=10.0.0.1:7411", "n2=io2.example.org:7411"]
    assert limits_of(far) == Limits(cores=5, memory_bytes=10) and has_stores(far)
    assert (this_host(far).node, this_host(far).cores) == ("node0", 5)
    assert not has_stores(read_settings(nodes=[NODE], environ={}))


def hold(root: str, ready: object, go: object) -> None:
    with StateDir(Path(root)).held():
        ready.set()  # type: ignore[attr-defined]
        go.wait(30)  # type: ignore[attr-defined]


def test_one_holds_the_lock_and_it_ends_with_the_process(tmp_path: Path) -> None:
    place = StateDir(tmp_path / "state")
    place.make()
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(place.root), ready, go))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(LockHeld, match=f"pid {holder.pid}"), place.held():
        pass
    holder.kill()
    holder.join()
    with place.held():
        assert int(place.lock.read_text()) == os.getpid()


def test_a_state_directory_is_its_owners_alone(tmp_path: Path) -> None:
    place = StateDir(tmp_path / "state")
    place.root.mkdir(mode=0o755)
    place.make()
    assert place.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_another_users_directory_is_refused(tmp_path: Path) -> None:
    place = StateDir(tmp_path / "state")
    place.root.mkdir()
    os.chown(place.root, 12345, -1)
    with pytest.raises(Denied, match="another user"):
        place.make()


def test_the_file_system_is_told_by_the_longest_and_latest_mount(tmp_path: Path) -> None:
    mounts = f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nlab: {tmp_path}/in\\040side fuse.sshfs rw 0 0\n"
    (tmp_path / "in side").mkdir()
    assert file_system_of(tmp_path / "in side", mounts) == "fuse.sshfs"
    assert file_system_of(tmp_path, mounts) == "nfs4"
    assert file_system_of(Path("/"), mounts) == "ext4"
    assert file_system_of(tmp_path, mounts + f"tmpfs {tmp_path} tmpfs rw 0 0\n") == "tmpfs"
