"""Several runs in one scheduler that call servers by names of their own: a name means something only within the run that gave it."""

from __future__ import annotations

from dataclasses import replace

from stager.model.files import Destination, File, Location, Source
from stager.model.ids import external_file_id
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service.views import problems_of
from stager.sim.checkers import all_checkers
from stager.sim.simulate import simulate
from stager.sim.troubles import DAMAGE
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants

LAB, CLOUD = "sftp://lab/data", "sftp://cloud/data"
NAMES = ("home", "lab", "here")


def origin(name: str, url: str, credentials: str = "", **options: str) -> Origin:
    return Origin(name, OriginKind.SFTP, url, credentials, tuple(sorted(options.items())))


def external(lfn: str, *names: str, path: str = "", token: str = "") -> File:
    where = [Location(name, path or f"in/{lfn}") for name in names]
    return File(lfn, size_bytes=100, sources=tuple(Source(place, 100, token or f"token-{lfn}") for place in where))


def workflow(name: str, origins: list[Origin], files: list[File], final_at: str, reads: list[list[str]]) -> Workflow:
    """Each job reads its inputs and the output of the one before, for a second; the last makes the final `NAME.end`."""
    jobs: dict[str, Job] = {}
    made: list[str] = []
    for index, lfns in enumerate(reads):
        out = f"{name}.end" if index == len(reads) - 1 else f"{name}.{index}"
        inputs = tuple(JobInput(lfn, lfn) for lfn in (*lfns, *made[-1:]))
        jobs[f"j{index}"] = Job(f"j{index}", "work", ("work",), inputs=inputs, outputs=(JobOutput(out, out),), compute_s=1.0, retries=0)
        made.append(out)
    produced = [File(lfn, size_bytes=10) for lfn in made[:-1]]
    produced.append(File(made[-1], size_bytes=10, destination=Destination(Location(final_at, f"out/{made[-1]}"))))
    return Workflow(name, {file.lfn: file for file in (*files, *produced)}, jobs, {entry.name: entry for entry in origins})


class Stage:
    """One node of this capacity, and what the Machine decided."""

    def __init__(self, policy: Policy | None = None, capacity: int = 10_000, cores: int = 4) -> None:
        links = tuple(OriginLink(name, 100.0, 100.0, 0.0) for name in NAMES)
        self.topology = Topology((Node("node0", capacity, cores),), links)
        self.world = SimWorld(self.topology, policy, checkers=all_checkers(), keep_journal=True)
        self.commands: list[cmd.Command] = []

    def submit(self, run: str, what: Workflow, at: float = 0.0, spill: str | None = None) -> None:
        self.world.submit(run, what, make_plan(what, self.topology, spill_origin=spill), at)

    def denied(self, url: str, at: float = 0.0, until: float = 1e6) -> None:
        for time, code in ((at, "denied"), (until, "")):
            self.world.clock.at(time, lambda code=code: setattr(self.world.origins[url], "fault_code", code))

    def resume(self, run: str, at: float) -> None:
        self.world.tell_at(at, lambda now: ev.RunResumed(at=now, run=run))

    def play(self) -> Machine:
        def watch(machine: Machine, events: object, commands: list[cmd.Command]) -> None:
            watch_invariants(machine, events, commands)
            self.commands += commands

        machine = simulate(self.world, watch)
        check_replay(self.world, machine)
        return machine

    def outcome(self, run: str) -> str:
        outcome = self.world.runs[run].outcome
        return outcome.value if outcome else "none"

    def fetches(self, run: str) -> list[tuple[str, str, float]]:
        """(file, origin's name, when)."""
        return [(each.lfn, each.origin, each.at) for each in self.commands if isinstance(each, cmd.Fetch) and each.run == run]


def small(name: str, where: Origin) -> Workflow:
    return workflow(name, [where], [external(f"{name}.in", where.name)], where.name, [[f"{name}.in"]])


def test_a_denial_at_one_runs_home_is_none_at_anothers() -> None:
    stage = Stage()
    stage.submit("r0", small("a", origin("home", LAB)))
    stage.submit("r1", small("b", origin("home", CLOUD)), at=0.5)
    stage.denied(LAB)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "succeeded")


def test_one_server_that_denies_is_paused_under_each_of_its_names() -> None:
    """Nothing more is asked of it: the second job's input is never tried."""
    stage = Stage(Policy(lookahead=False))
    stage.submit("r0", small("a", origin("home", LAB)), at=0.1)
    stage.submit("r1", workflow("b", [origin("lab", LAB), origin("here", CLOUD)], [external("b.late", "lab")], "here", [[], ["b.late"]]))
    stage.denied(LAB)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "failed")
    assert stage.fetches("r1") == []


def test_other_credentials_at_one_server_are_another_matter() -> None:
    """How fast it may be asked is not."""
    ours, theirs = origin("home", LAB, "key:/ours"), origin("lab", LAB, "key:/theirs", bandwidth="5")
    assert ours.identity != theirs.identity and ours.place == theirs.place
    assert theirs.identity == origin("here", LAB, "key:/theirs").identity
    assert origin("a", LAB, host_key_alias="x").identity != origin("a", LAB).identity


def test_a_resume_opens_the_origins_of_its_run_and_no_other() -> None:
    stage = Stage()
    stage.submit("r0", small("a", origin("home", LAB)))
    stage.submit("r1", small("b", origin("home", CLOUD)))
    stage.denied(LAB)
    stage.denied(CLOUD, until=5.0)
    stage.resume("r1", at=10.0)
    machine = stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "succeeded")
    assert list(machine.state.paused_origins) == [origin("home", LAB).identity]


def test_a_new_run_brings_credentials_of_its_own_and_is_tried() -> None:
    """Whoever mends a key and submits again, instead of resuming, is not told what was true yesterday."""
    stage = Stage()
    stage.submit("r0", small("a", origin("home", LAB)))
    stage.denied(LAB, until=5.0)
    stage.submit("r1", small("b", origin("lab", LAB)), at=10.0)
    machine = stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "succeeded")
    assert not machine.state.paused_origins


def test_only_the_source_that_denied_is_paused() -> None:
    """The first source lacks the file, the second denies: what else the first has is still to be had."""
    stage = Stage(Policy(lookahead=False))
    both = external("a.in", "home", "lab")
    stage.submit("r0", workflow("a", [origin("home", CLOUD), origin("lab", LAB)], [both], "home", [["a.in"]]))
    del stage.world.origins[CLOUD].files["in/a.in"]
    stage.submit("r1", workflow("b", [origin("home", CLOUD)], [external("b.in", "home")], "home", [[], ["b.in"]]))
    stage.denied(LAB)
    machine = stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "succeeded")
    assert list(machine.state.paused_origins) == [origin("lab", LAB).identity]


def test_a_run_is_told_of_the_pauses_of_its_own_origins() -> None:
    stage = Stage()
    stage.submit("r0", small("a", origin("home", LAB)))
    stage.submit("r1", small("b", origin("home", CLOUD)), at=0.5)
    stage.submit("r2", workflow("c", [origin("here", LAB), origin("lab", CLOUD)], [], "lab", [[]]))
    stage.denied(LAB)
    state = stage.play().state
    told = {run: [problem.code for problem in problems_of(state, entry, [])] for run, entry in state.runs.items()}
    assert told == {"r0": ["denied"], "r1": [], "r2": ["denied"]}


def lose(stage: Stage, at: float) -> None:
    """The scrubber finds the external replica damaged."""

    def happen(now: float) -> ev.ReplicaCorrupt:
        node = stage.world.nodes["node0"]
        file, generation = next(key for key in node.replicas if key[0].startswith("x"))
        node.replicas[file, generation].quarantined = True
        return ev.ReplicaCorrupt(at=now, node=node.id, file=file, generation=generation, fault=DAMAGE)

    stage.world.tell_at(at, happen)


def test_a_shared_file_is_fetched_by_the_name_that_its_run_has_for_the_origin() -> None:
    """The first run ended and the file is lost: the second, for which `home` is another server, fetches it from where it knows it."""
    stage = Stage()
    stage.submit("r0", workflow("a", [origin("home", LAB)], [external("x", "home")], "home", [["x"]]))
    theirs = [origin("lab", LAB), origin("home", CLOUD)]
    stage.submit("r1", workflow("b", theirs, [external("y", "lab", path="in/x", token="token-x")], "home", [[]] * 6 + [["y"]]))
    lose(stage, at=4.0)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("succeeded", "succeeded")
    assert [each[:2] for each in stage.fetches("r0")] == [("x", "home")]
    assert [each[:2] for each in stage.fetches("r1")] == [("y", "lab")]


def test_a_run_with_a_second_source_does_not_fail_with_one_that_has_none() -> None:
    stage = Stage(Policy(lookahead=False))
    stage.submit("r0", workflow("a", [origin("home", LAB)], [external("x", "home")], "home", [["x"]]))
    theirs = [origin("lab", LAB), origin("home", CLOUD)]
    stage.submit("r1", workflow("b", theirs, [external("x", "lab", "home")], "home", [["x"]]))
    del stage.world.origins[LAB].files["in/x"]
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "succeeded")
    assert [each[:2] for each in stage.fetches("r1")] == [("x", "lab"), ("x", "home")]


def test_a_paused_source_is_passed_over_while_there_is_another() -> None:
    stage = Stage(Policy(lookahead=False))
    stage.submit("r0", small("a", origin("home", LAB)))
    theirs = [origin("lab", LAB), origin("home", CLOUD)]
    stage.submit("r1", workflow("b", theirs, [external("x", "lab", "home")], "home", [[], ["x"]]))
    stage.denied(LAB)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "succeeded")
    assert [each[:2] for each in stage.fetches("r1")] == [("x", "home")]


def test_readers_of_all_runs_fail_by_name_when_their_only_source_denies() -> None:
    """Both were admitted and wait for the same transfer; none of them is left waiting."""
    stage = Stage(Policy(lookahead=False))
    for run, name in (("r0", "home"), ("r1", "lab")):
        stage.submit(run, workflow(run, [origin(name, LAB)], [external("x", name)], name, [["x"]]))
    stage.denied(LAB)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "failed")
    assert stage.fetches("r1") == [] and len(stage.fetches("r0")) == 1


def test_a_run_that_joins_a_file_given_up_by_another_tries_with_its_own_credentials() -> None:
    stage = Stage(Policy(lookahead=False))
    ours = [external("x", "home"), external("other", "here")]
    stage.submit("r0", workflow("a", [origin("home", LAB, "key:/bad"), origin("here", CLOUD)], ours, "here", [["other"], *[[]] * 5, []]))
    stage.submit("r2", workflow("c", [origin("home", LAB, "key:/bad")], [external("x", "home")], "home", [["x"]]))
    stage.denied(LAB, until=2.0)
    stage.submit("r1", workflow("b", [origin("lab", LAB, "key:/good")], [external("x", "lab")], "lab", [["x"]]), at=3.0)
    stage.play()
    assert [stage.outcome(run) for run in ("r0", "r1", "r2")] == ["succeeded", "succeeded", "failed"]


def test_sources_are_tried_in_turn_from_the_one_that_was_taken() -> None:
    """The first is paused and passed over, the second lacks the file: the third is next, and nothing is asked twice."""
    stage = Stage(Policy(lookahead=False))
    stage.submit("r0", small("a", origin("home", LAB)))
    theirs = [origin("lab", LAB), origin("home", CLOUD), origin("here", "sftp://mirror/data")]
    stage.submit("r1", workflow("b", theirs, [external("x", "lab", "home", "here")], "home", [[], ["x"]]))
    del stage.world.origins[CLOUD].files["in/x"]
    stage.denied(LAB)
    stage.play()
    assert stage.outcome("r1") == "succeeded"
    assert [each[1] for each in stage.fetches("r1")] == ["home", "here"]


def spilling(stage: Stage) -> None:
    """`a.0` has to be put elsewhere while the two jobs between it and its reader run."""
    made = {"keep": 450, "go": 10, "other": 300, "end": 10}
    files = {lfn: File(lfn, size_bytes=size) for lfn, size in made.items()} | {"in": external("in", "home")}
    files["in"] = replace(files["in"], size_bytes=400, sources=tuple(replace(source, size_bytes=400) for source in files["in"].sources))
    reads = {"a": ([], ["keep", "go"]), "b": (["go", "in"], ["other"]), "c": (["keep", "other"], ["end"])}
    jobs = {
        job: Job(
            job,
            "work",
            ("work",),
            inputs=tuple(JobInput(lfn, lfn) for lfn in ins),
            outputs=tuple(JobOutput(lfn, lfn) for lfn in outs),
            compute_s=1.0,
        )
        for job, (ins, outs) in reads.items()
    }
    stage.submit("r0", Workflow("s", files, jobs, {"home": origin("home", CLOUD), "lab": origin("lab", LAB)}), spill="lab")


def test_a_spill_that_is_denied_pauses_its_origin_and_goes_on_when_the_run_is_resumed() -> None:
    stage = Stage(capacity=1000)
    spilling(stage)
    stage.denied(LAB, until=50.0)
    stage.resume("r0", at=100.0)
    stage.play()
    asked = [each.at for each in stage.commands if isinstance(each, cmd.Upload)]
    assert len([at for at in asked if at < 100]) == 1
    outcomes = [each.outcome.value for each in stage.commands if isinstance(each, cmd.FinishRun)]
    assert outcomes == ["refused", "succeeded"]


def test_a_spill_that_fails_is_tried_again_with_growing_pauses() -> None:
    stage = Stage(capacity=1000)
    spilling(stage)
    stage.world.clock.at(0.0, lambda: setattr(stage.world.origins[LAB], "fault_code", "origin_unreachable"))
    stage.world.clock.at(60.0, lambda: setattr(stage.world.origins[LAB], "fault_code", ""))
    stage.play()
    asked = [each.at for each in stage.commands if isinstance(each, cmd.Upload)]
    pauses = [later - sooner for sooner, later in zip(asked, asked[1:], strict=False)]
    assert stage.outcome("r0") == "succeeded" and 3 <= len(pauses) <= 10 and max(pauses) > 4 * pauses[0]


def bucket(name: str, endpoint: str) -> Origin:
    return Origin(name, OriginKind.S3, "s3://data/in", options=(("endpoint", endpoint),) if endpoint else ())


def test_buckets_of_one_name_on_two_servers_are_two_places() -> None:
    """With equal paths and tokens, too: an ETag says nothing of the server."""
    stage = Stage()
    for run, endpoint in (("a", "https://one.example"), ("b", "https://two.example"), ("c", "https://ONE.example/")):
        files = [external("in", "home", token="etag")]
        stage.submit(run, workflow(run, [bucket("home", endpoint), origin("lab", LAB)], files, "lab", [["in"]]))
    stage.play()
    fetched = {command.file: command.run for command in stage.commands if isinstance(command, cmd.Fetch)}
    assert sorted(fetched.values()) in (["a", "b"], ["b", "c"]), fetched


def test_runs_of_journals_of_before_keep_the_names_of_their_files() -> None:
    """Their commands name them: what was submitted without `ids` is named by its URL, whatever the endpoint."""
    stage = Stage()
    files = [external("in", "home", token="etag")]
    what = workflow("a", [bucket("home", "https://one.example"), origin("lab", LAB)], files, "lab", [["in"]])
    machine = Machine(Policy(), Limits())
    plan = make_plan(what, stage.topology)
    for ids, known in ((1, external_file_id("s3://data/in", "in/in", "etag")), (2, None)):
        event = ev.RunSubmitted(at=0.0, run=f"r{ids}", workflow=what, plan=plan, ids=ids)
        machine.step(event)
        named = machine.state.runs[f"r{ids}"].file_ids["in"]
        assert (named == known) is (known is not None), ids
    assert ev.RunSubmitted(at=0.0, run="r", workflow=what, plan=plan).ids == 1
