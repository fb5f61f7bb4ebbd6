"""What transfers told of links: kept, read, planned with, and said where somebody looks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stager.adapters import moves
from stager.adapters.profiles_store import ProfilesStore
from stager.cli.links import assumed_rates, link_lines
from stager.estimate import estimate
from stager.model.cluster import Cluster, WanLink
from stager.model.ids import digest_of
from stager.model.link import SMALL_BYTES, Measured, Move
from stager.model.topology import Node, OriginLink, Topology, embedded
from stager.model.workflow import Origin, OriginKind
from stager.planning.bounds import lower_bound
from stager.planning.links import link_of, link_plan
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis
from stager.planning.plan_json import from_json, to_json
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.choices import drawn
from stager.service.measuring import Measuring
from stager.service.profiles import load_links
from stager.service.settings import Settings
from stager.wire import codec
from tests.model.test_estimate import CHAIN, workflow

LAB = Origin("lab", OriginKind.SFTP, "sftp://ana@lab.example/data")
HERE = Origin("lab", OriginKind.FILE, "file:/data")
SEEN = Measured(12e6, 6e6, 0.02, 0.3, 0.004, 0.097, 0.75, dispatch_s=0.0095)


def done(transfer: str, at: float = 20.0, **facts: Any) -> ev.TransferDone:
    usual = {"node": "n", "size_bytes": 900, "blake3": "", "bytes_moved": 900, "duration_s": 5.0, "verified": ""}
    return ev.TransferDone(at=at, transfer=transfer, **(usual | facts))  # type: ignore[arg-type]


def begun(kind: type, transfer: str, run: str = "r") -> Any:
    facts = {"id": f"c{transfer}", "at": 1.0, "cause": "", "node": "n", "file": "f", "lfn": "f", "origin": "lab", "path": "p"}
    more = {"token": ""} if kind is cmd.Fetch else {"generation": "g"}
    return kind(transfer=transfer, run=run, size_bytes=900, purpose=cmd.Purpose.DEMAND, priority=1, **facts, **more)


def seen_by(origin: Origin, *batches: tuple[list[Any], list[Any]]) -> list[moves.Seen]:
    store = SimpleNamespace(seen=[], add=list, add_overheads=list)
    store.add_moves = store.seen.extend
    runs = {"r": SimpleNamespace(workflow=SimpleNamespace(origins={"lab": origin}))}
    measuring = Measuring(store, SimpleNamespace(state=SimpleNamespace(runs=runs)))  # type: ignore[arg-type]
    for events, commands in batches:
        measuring.saw(events, commands)
    return list(store.seen)


def test_a_transfer_is_measured_by_the_seconds_that_the_node_counted() -> None:
    """From its command on it waited for its turn."""
    seen = seen_by(LAB, ([], [begun(cmd.Fetch, "t1"), begun(cmd.Upload, "t2")]), ([done("t1"), done("t2", duration_s=19.5)], []))
    assert seen == [
        ("t1", LAB.link, Move("r", True, 15.0, 20.0, 900, waited_s=14.0)),
        ("t2", LAB.link, Move("r", False, 0.5, 20.0, 900, waited_s=0.0)),
    ]


@pytest.mark.parametrize("origin", [LAB, Origin("lab", OriginKind.S3, "s3://lab"), replace(LAB, options=(("shell_checksum", "false"),))])
def test_what_comes_back_to_be_verified_is_told_apart(origin: Origin) -> None:
    """Declared or not; but what lies in a directory of this machine crosses nothing."""
    for where, verified, came_back in ((origin, "readback", True), (origin, "adopted", False), (HERE, "readback", False)):
        ((_, _, there),) = seen_by(where, ([], [begun(cmd.Upload, "t")]), ([done("t", bytes_moved=1800, verified=verified)], []))
        assert (there.read_back, there.moved_bytes) == (came_back, 900)


@pytest.mark.parametrize(
    "events",
    [
        [done("unknown")],
        [done("t", bytes_moved=0, verified="adopted")],
        [done("t", duration_s=0.0)],
        [ev.TransferCancelled(at=2.0, node="n", transfer="t"), done("t")],
    ],
    ids=["begun before", "was there already", "took no time", "cancelled"],
)
def test_what_says_nothing_of_a_link_is_left_out(events: list[Any]) -> None:
    assert seen_by(LAB, ([], [begun(cmd.Fetch, "t")]), (events, [])) == []


def test_a_run_that_is_gone_is_no_stumbling_block() -> None:
    assert seen_by(LAB, ([], [begun(cmd.Fetch, "t", run="gone")]), ([done("t")], [])) == []


def test_of_each_link_and_direction_the_newest_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "KEPT", 2)
    path = tmp_path / "profiles.sqlite"
    assert moves.read(path) == {}
    store = ProfilesStore(path)
    ways = [(link, is_fetch, number) for link in "ab" for is_fetch in (True, False) for number in range(4)]
    made = [(f"{link}{way}{at}", link, Move(f"r{at}", way, at, at + 1.5, 10 * at, read_back=at == 3)) for link, way, at in ways]
    store.add_moves(made)
    store.add_moves([("aTrue3", "a", Move("r3", True, 0.0, 99.0, 1))])
    store.close()
    found = moves.read(path)
    assert {link: sorted((move.is_fetch, move.begun_at, move.read_back) for move in each) for link, each in found.items()} == dict.fromkeys(
        "ab", [(False, 2.0, False), (False, 3.0, True), (True, 2.0, False), (True, 3.0, True)]
    )


def test_of_a_run_the_first_are_kept_small_ones_and_large_ones_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were under way when one of them began are there, too. And thousands of small files leave what large ones tell."""
    monkeypatch.setattr(moves, "KEPT_OF_RUN", 3)
    monkeypatch.setattr(moves, "PRUNE_EVERY", 2)
    path = tmp_path / "profiles.sqlite"
    store = ProfilesStore(path)
    for number in range(8):
        size_bytes = SMALL_BYTES + 1 if number in (0, 7) else SMALL_BYTES
        store.add_moves([(f"t{number}", "a", Move("r", True, float(number), 100.0 + number * 3 % 8, size_bytes))])
        store.write()
    kept = sorted((move.moved_bytes > SMALL_BYTES, move.begun_at) for move in moves.read(path)["a"])
    assert kept == [(False, 1.0), (False, 2.0), (False, 3.0), (True, 0.0)], "the one at 7 was not alone"
    store.close()


def test_large_ones_are_told_of_though_they_came_when_the_small_were_not_counted_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else tells of the rate. Other runs and the other direction have cuts of their own."""
    monkeypatch.setattr(moves, "KEPT_OF_RUN", 3)
    store = ProfilesStore(tmp_path / "profiles.sqlite")
    made = [Move("late", True, 2.0 * at, 100.0 + at, SMALL_BYTES + (at > 4)) for at in range(7)]
    made += [Move("other", True, float(at), 100.0 + at, SMALL_BYTES + (at == 1)) for at in range(3)]
    made += [Move("late", False, 50.0, 100.0, SMALL_BYTES + 1)]
    store.add_moves([(f"t{number}", "a", move) for number, move in enumerate(made)])
    store.prune()
    store.close()
    assert moves.read(tmp_path / "profiles.sqlite")["a"] == [made[-1], *made[:3], *made[5:7], made[7], made[9], made[8]]


def test_a_run_is_kept_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "KEPT", 5)
    path = tmp_path / "profiles.sqlite"
    store = ProfilesStore(path)
    runs = (("old", 3, 0.0), ("middle", 4, 100.0), ("new", 4, 200.0))
    store.add_moves([(f"{run}{n}", "a", Move(run, True, at + n, at + n + 1, 10)) for run, count, at in runs for n in range(count)])
    store.close()
    assert [move.run for move in moves.read(path)["a"]] == ["middle"] * 4 + ["new"] * 4


def test_of_a_fetch_what_came_counts() -> None:
    """It may have been resumed."""
    (fetched,) = seen_by(LAB, ([], [begun(cmd.Fetch, "t")]), ([done("t", bytes_moved=700)], []))
    assert fetched[2].moved_bytes == 700


def test_a_store_of_before_tells_nothing_and_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "profiles.sqlite"
    store = ProfilesStore(path)
    for table in ("moves", "move_waits"):
        store.db.execute(f"DROP TABLE {table}")
    store.close()
    assert moves.read(path) == {}
    again = ProfilesStore(path)
    again.add_moves([("t", "a", Move("r", True, 0.0, 1.0, 1))])
    again.close()
    assert list(moves.read(path)) == ["a"]


def test_how_long_each_waited_for_its_turn_is_kept_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of before did not note it, and what goes takes its wait along."""
    monkeypatch.setattr(moves, "KEPT", 1)
    path, old, new = (
        tmp_path / "profiles.sqlite",
        Move("old", True, 0.0, 1.0, 1, waited_s=0.5),
        Move("new", True, 5.0, 6.0, 1, waited_s=0.25),
    )
    store = ProfilesStore(path)
    store.add_moves([("t1", "a", old)])
    store.write()
    assert moves.read(path) == {"a": [old]}
    store.add_moves([("t2", "a", new)])
    store.prune()
    assert moves.read(path) == {"a": [new]}
    assert store.db.execute("SELECT transfer FROM move_waits").fetchall() == [("t2",)]
    store.db.execute("DROP TABLE move_waits")
    assert moves.read(path) == {"a": [replace(new, waited_s=None)]}
    store.close()


BUCKET = Origin("b", OriginKind.S3, "s3://data/in", "env:A_", (("endpoint", "https://s3.example"),))


@pytest.mark.parametrize(
    ("origin", "same", "others"),
    [
        (
            LAB,
            [
                replace(LAB, name="theirs", options=(("connections_max", "4"),)),
                replace(LAB, url="sftp://ana@LAB.example:22/other/data", credentials="key:/k"),
                replace(LAB, kind=OriginKind.SSHFS, url="sshfs://ana@lab.example/~/data"),
            ],
            [
                replace(LAB, url="sftp://ana@far.example/data"),
                replace(LAB, url="sftp://ana@lab.example:2022/data"),
                replace(LAB, url="sftp://bob@lab.example/data"),
                replace(LAB, options=(("bandwidth", "5 MB"),)),
            ],
        ),
        (
            BUCKET,
            [replace(BUCKET, url="s3://data"), replace(BUCKET, url="s3://data/out/", credentials="env:B_")],
            [replace(BUCKET, url="s3://other/in"), replace(BUCKET, options=(("endpoint", "https://s3.far.example"),))],
        ),
        (
            Origin("w", OriginKind.HTTP, "https://web.example/a", options=(("queries", "true"),)),
            [Origin("w", OriginKind.HTTP, "https://web.example:443/b/c")],
            [Origin("w", OriginKind.HTTP, "http://web.example/a")],
        ),
        (HERE, [replace(HERE, url="file:///data/")], [replace(HERE, url="file:/data/below")]),
    ],
    ids=["ssh", "bucket", "web", "directory"],
)
def test_a_link_is_known_by_its_server_and_not_by_a_name_that_can_be_read(origin: Origin, same: list[Origin], others: list[Origin]) -> None:
    assert {each.link for each in same} == {origin.link}
    assert len({origin.link, *(each.link for each in others)}) == 1 + len(others)
    assert not any(word in origin.link for word in ("ana", "lab", "data"))


def test_what_was_measured_while_each_directory_had_a_link_of_its_own_is_known_still(tmp_path: Path) -> None:
    """The digest of then, and what was moved since through another directory of the server."""
    assert LAB.link_of_place == digest_of("link", "sftp://lab.example:22/data", "ana", "", "") != LAB.link
    assert HERE.link_of_place == HERE.link, "a directory of this machine has it still"
    settings = Settings(tmp_path, 10**9, 1)
    store = ProfilesStore(tmp_path / "profiles.sqlite")
    other = replace(LAB, name="other", url="sftp://ana@lab.example/other")
    both = replace(workflow(CHAIN), origins={"lab": LAB, "other": other})

    def found() -> dict[str, OriginLink]:
        return {link.origin: link for link in load_links(settings, both)}

    store.add_moves([("t0", LAB.link_of_place, Move("r0", True, 0.0, 4.0, 40_000_000))])
    store.write()
    assert {name: link.fetch_bytes_per_s for name, link in found().items()} == {"lab": pytest.approx(10e6, rel=0.05)}
    store.add_moves([("t1", other.link, Move("r1", False, 10.0, 14.0, 20_000_000))])
    store.close()
    after = {name: (link.measured, link.upload_bytes_per_s) for name, link in found().items()}
    assert after == {"lab": (True, after["other"][1]), "other": (False, pytest.approx(5e6, rel=0.05))}


def test_a_plan_says_what_it_took_the_links_to_be_and_why() -> None:
    plan = make_plan(workflow(CHAIN), embedded(10**6, links=(SEEN.of("home"),)))
    (link,) = plan.links
    assert (link.fetch_bytes_per_s, link.upload_bytes_per_s, link.latency_s, link.upload_latency_s) == (12e6, 6e6, 0.02, 0.3)
    assert (link.fetch_basis, link.upload_basis, link.latency_basis) == (Basis.MEASURED, Basis.MEASURED, Basis.MEASURED)
    assert (link.fetch_file_s, link.fetch_file_basis) == (0.004, Basis.MEASURED)
    assert (link.upload_file_s, link.upload_file_basis) == (0.097, Basis.MEASURED)
    assert link_of(link) == SEEN.of("home")
    assert from_json(to_json(plan)) == plan
    assert assumed_rates(plan.links) == []


def test_a_plan_of_before_told_of_no_links() -> None:
    said = json.loads(to_json(make_plan(workflow(CHAIN), embedded(10**6)))) | {"version": 3}
    del said["links"]
    assert from_json(json.dumps(said)).links == ()


def test_a_plan_of_before_knew_nothing_of_what_files_cost() -> None:
    """On paper, and in the journal."""
    plan = make_plan(workflow(CHAIN), embedded(10**6, links=(SEEN.of("home"),)))
    for encoded, decoded in ((to_json(plan), from_json), (codec.encode(plan).decode(), lambda text: codec.decode_plan(text.encode()))):
        said = json.loads(encoded)
        for key in ("fetch_file_s", "fetch_file_basis", "upload_file_s", "upload_file_basis", "login_s", "dispatch_s"):
            del said["links"][0][key]
        old = decoded(json.dumps(said))
        assert (old.links[0].fetch_file_s, old.links[0].upload_file_s, old.links[0].login_s, old.links[0].dispatch_s) == (None,) * 4
        assert (old.links[0].fetch_file_basis, old.links[0].upload_file_basis) == (Basis.DEFAULT, Basis.DEFAULT)
        assert old.links[0].fetch_bytes_per_s == 12e6
        assert decoded(encoded) == plan


@pytest.mark.parametrize(
    ("link", "bases", "assumed"),
    [
        (OriginLink("home"), (Basis.DEFAULT, Basis.DEFAULT, Basis.DEFAULT), ["home"]),
        (replace(Measured(fetch_bytes_per_s=1e6).of("home")), (Basis.MEASURED, Basis.DEFAULT, Basis.DEFAULT), ["home"]),
        (OriginLink("home", said=True), (Basis.DECLARED, Basis.DECLARED, Basis.DECLARED), []),
        (replace(SEEN.of("home"), bounded=True), (Basis.DECLARED, Basis.MEASURED, Basis.MEASURED), []),
    ],
)
def test_every_number_of_a_link_has_its_basis(link: OriginLink, bases: tuple[Basis, ...], assumed: list[str]) -> None:
    planned = link_plan(link)
    assert (planned.fetch_basis, planned.upload_basis, planned.latency_basis) == bases
    assert assumed_rates([planned]) == assumed


def test_finals_that_were_read_back_are_predicted_to_be() -> None:
    """Nobody declared it: `home` may be asked for checksums, for all that the workflow says. 100 bytes come back at 100 per second."""
    asked = replace(workflow(CHAIN), origins={"home": replace(workflow(CHAIN).origins["home"], options=())})
    link = OriginLink("home", 100.0, 50.0, 0.0)
    topology = Topology((Node("n", 10**6, disk_bytes_per_s=1e12),), (link,))
    seen = replace(topology, links=(replace(link, reads_back=True),))
    before, after = estimate(asked, topology), estimate(asked, seen)
    assert (before.readback_bytes, before.plan.readback_bytes) == (0, 0)
    assert (after.readback_bytes, after.plan.readback_bytes) == (100, 100)
    for later_s in (after.wall_s - before.wall_s, after.plan.makespan_s - before.plan.makespan_s):
        assert later_s == pytest.approx(1.0)
    assert lower_bound(asked, seen, after.plan).least_s == pytest.approx(lower_bound(asked, topology, before.plan).least_s + 1.0)
    assert link_of(after.plan.links[0]).reads_back
    assert ", uploads read back (measured)" in link_lines(after.plan.links)[0]


def test_a_declared_bandwidth_bounds_what_was_measured() -> None:
    narrow = replace(workflow(CHAIN), origins={"home": replace(workflow(CHAIN).origins["home"], options=(("bandwidth", "8 MB"),))})
    (link,) = make_plan(narrow, embedded(10**6, links=(SEEN.of("home"),))).links
    assert (link.fetch_bytes_per_s, link.upload_bytes_per_s, link.fetch_basis) == (8e6, 6e6, Basis.DECLARED)


def test_a_measured_link_is_doubted_less_than_an_assumed_one() -> None:
    w = workflow(CHAIN)

    def rates(cluster: Cluster) -> list[float]:
        return [drawn(cluster, w, seed).wan("home").link.fetch_bytes_per_s for seed in range(1, 40)]

    known, usual = rates(Cluster(links={"home": WanLink(SEEN.of("home"))})), rates(Cluster())
    assert 12e6 / 1.1 <= min(known) < max(known) <= 12e6 * 1.1
    assert min(usual) < 50e6 / 1.5
    assert max(usual) > 50e6 * 1.5


def test_a_link_that_is_quicker_in_a_draw_is_quicker_with_each_file() -> None:
    w, dear = workflow(CHAIN), Cluster(links={"home": WanLink(SEEN.of("home"))})
    for link in (drawn(dear, w, seed).wan("home").link for seed in range(1, 9)):
        assert link.upload_file_s == pytest.approx(0.097 * 12e6 / link.fetch_bytes_per_s)
        assert link.fetch_file_s == pytest.approx(0.004 * 12e6 / link.fetch_bytes_per_s)
    free = drawn(Cluster(), w, 3).wan("home").link
    assert (free.fetch_file_s, free.upload_file_s) == (None, None)


def test_plan_and_simulation_wait_alike_before_an_upload() -> None:
    """One of 100 bytes at 50 a second, after three seconds in which it is opened, verified and renamed; `in` takes 1000 at 100."""
    link = OriginLink("home", 100.0, 50.0, 0.5, upload_latency_s=3.0)
    asked = replace(workflow(CHAIN), origins={"home": replace(workflow(CHAIN).origins["home"], options=())})
    report = estimate(asked, Topology((Node("n", 10**6, disk_bytes_per_s=1e12),), (link,)))
    assert report.wall_s == pytest.approx(0.5 + 10 + 3 + 4 + 3 + 2, abs=0.01)
    assert report.plan.makespan_s == pytest.approx(report.wall_s, abs=0.01)


def test_people_read_what_each_number_rests_on() -> None:
    known, usual = link_lines([link_plan(SEEN.of("lab")), link_plan(OriginLink("home"))])
    assert known == (
        "lab: fetches 12 MB/s (measured), uploads 6 MB/s (measured), 20 ms before the first byte (measured), "
        "750 ms to log in (measured), 9.5 ms until it is begun (measured), 300 ms of an upload (measured), "
        "for each file 4 ms to fetch (measured), 97 ms to upload (measured)"
    )
    (said,) = link_lines([link_plan(OriginLink("lab", upload_file_s=0.0005, said=True))])
    assert said.endswith(", for each file 0.5 ms to upload (declared)")
    (slow,) = link_lines([link_plan(OriginLink("lab", upload_file_s=1.5, login_s=12.0))])
    assert "12 s to log in (measured)" in slow
    assert slow.endswith(", for each file 1.50 s to upload (assumed)")
    (said,) = link_lines([link_plan(OriginLink("lab", said=True))])
    assert said.endswith("50 ms before the first byte (declared), nothing more for each file (declared)")
    assert usual == (
        "home: fetches 50 MB/s (assumed), uploads 50 MB/s (assumed), 50 ms before the first byte (assumed), "
        "nothing more for each file (assumed)"
    )
