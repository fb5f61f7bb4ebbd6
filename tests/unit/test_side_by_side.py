"""Questions that go side by side: each asker has all answers in order, or the first error of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from stager.model.errors import Denied, ErrorClass, Fault
from stager.model.files import Destination, File, Location
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.ports import DirectoryListing, OriginEntry, Probe
from stager.service.destinations import at_destinations
from stager.service.prepare import require_destinations, seen_at_destinations
from stager.service.side_by_side import side_by_side

# Nobody waits so long; whoever asks one after the other would wait for ever.
PATIENCE_S = 20.0


def test_answers_come_in_the_order_of_the_questions_and_all_are_asked_at_once() -> None:
    together = threading.Barrier(3)

    def asked(number: int) -> int:
        together.wait(PATIENCE_S)
        return number

    assert side_by_side([partial(asked, number) for number in range(3)]) == [0, 1, 2]
    assert side_by_side([]) == []


def test_one_question_needs_no_thread() -> None:
    assert side_by_side([threading.current_thread]) == [threading.current_thread()]


def test_the_first_error_by_the_order_of_the_questions_is_raised_when_all_have_ended() -> None:
    second_failed, ended = threading.Event(), list[str]()

    def first() -> None:
        assert second_failed.wait(PATIENCE_S)
        ended.append("first")
        raise Denied("first")

    def second() -> None:
        ended.append("second")
        second_failed.set()
        raise ValueError

    with pytest.raises(Denied, match="first"):
        side_by_side([first, second, lambda: ended.append("third")])
    assert sorted(ended) == ["first", "second", "third"]


@dataclass
class Patient:
    """Answers when so many have asked."""

    together: threading.Barrier
    denied: frozenset[str] = frozenset()
    probed: list[str] = field(default_factory=list)

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        self.together.wait(PATIENCE_S)
        self.probed.append(path)
        findings = (Fault(ErrorClass.DENIED, "permission_denied", f"no rights in {path}", path),) if path in self.denied else ()
        return Probe(True, not findings, None, findings)

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        self.together.wait(PATIENCE_S)
        return [Fault(ErrorClass.INVALID_INPUT, "not_found", f"{origin.name}:{path}", path) for path in paths]

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 1_000_000) -> DirectoryListing:
        raise AssertionError("nothing is listed")


def going_to(*places: str) -> Workflow:
    """One final each, by origin and path."""
    split = {place: place.split(":") for place in places}
    files = {place: File(place, destination=Destination(Location(origin, path))) for place, (origin, path) in split.items()}
    job = Job("make", "make", ("true",), outputs=tuple(JobOutput(place, f"o{number}") for number, place in enumerate(places)))
    origins = {origin: Origin(origin, OriginKind.S3, f"s3://{origin}") for origin, _ in split.values()}
    return Workflow("w", files, {"make": job}, origins)


def test_directories_of_finals_are_probed_at_once() -> None:
    access = Patient(threading.Barrier(4))
    require_destinations(going_to("a:x/f", "a:y/f", "a:z/f", "b:x/f"), access)
    assert sorted(access.probed) == ["x", "x", "y", "z"]


def test_all_that_keeps_finals_from_their_origins_is_told_in_order() -> None:
    access = Patient(threading.Barrier(3), frozenset({"y", "z"}))
    with pytest.raises(Denied) as refused:
        require_destinations(going_to("a:y/f", "a:x/f", "b:z/f"), access)
    assert refused.value.message.split("\n") == [
        "finals cannot go to the origin 'a': no rights in y",
        "finals cannot go to the origin 'b': no rights in z",
    ]


def test_origins_are_asked_at_once_for_what_is_there() -> None:
    answers = at_destinations(going_to("a:x/f", "b:y/g"), Patient(threading.Barrier(2)))
    assert {key: answer.message for key, answer in answers.items() if isinstance(answer, Fault)} == {
        ("a", "x/f"): "a:x/f",
        ("b", "y/g"): "b:y/g",
    }


def test_a_submit_probes_and_looks_for_what_is_there_at_once() -> None:
    answers = seen_at_destinations(going_to("a:x/f"), Patient(threading.Barrier(2)), ())
    assert list(answers) == [("a", "x/f")]


def test_destinations_of_an_engines_run_are_probed_and_not_looked_for() -> None:
    access = Patient(threading.Barrier(1))
    assert seen_at_destinations(replace(going_to("a:x/f"), engine="airflow"), access, ()) == {}
    assert access.probed == ["x"]
