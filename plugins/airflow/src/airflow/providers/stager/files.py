"""The files of one try of a task as local paths: staged by the service, or else moved by the task itself.

May know: the calls, what is loose. One rule: one object for each try in a process, whoever asks first; asked again, it gives the
same paths.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow.providers.stager import service
from airflow.providers.stager.calls import Called, Calls, Try
from airflow.providers.stager.facts import dag_fact
from airflow.providers.stager.graph import INTERMEDIATE, READABLE, scheme_of
from airflow.providers.stager.loose import Loose
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException

log = logging.getLogger("airflow.task")
SCHEMES = (*READABLE, INTERMEDIATE)


@dataclass(slots=True)
class TaskFiles:
    """`files[asset]` is a local path: of an input where its content is, of an output where it is to be written."""

    calls: Calls
    names: dict[str, str] = field(default_factory=dict)
    scratch: Path | None = None
    paths_in: dict[str, Path] = field(default_factory=dict)
    paths_out: dict[str, Path] = field(default_factory=dict)
    loose_out: dict[str, Path] = field(default_factory=dict)
    newer: set[str] = field(default_factory=set)
    asked: bool = False
    over: bool = False

    @property
    def inputs(self) -> Mapping[str, Path]:
        """By URI."""
        return dict(self.paths_in)

    @property
    def outputs(self) -> Mapping[str, Path]:
        return dict(self.paths_out)

    def __getitem__(self, file: Any) -> Path:
        uri = self.uri_of(file)
        if uri in self.paths_out:
            return self.paths_out[uri]
        if uri in self.paths_in:
            return self.paths_in[uri]
        if not scheme_of(uri):
            raise KeyError(no_file(uri))
        text = f"{uri} is neither an inlet nor an outlet of {self.calls.attempt.task_id}"
        raise KeyError(f"{text}; a file that is known only when the task runs is had by files.input(uri) or files.output(uri)")

    def input(self, file: Any) -> Path:
        """Where the content is; waits until it is there."""
        uri = self.uri_of(file)
        if uri not in self.paths_in:
            self.stage([uri], [])
        return self.paths_in[uri]

    def output(self, file: Any) -> Path:
        """Where to write it; it is handed over when the task has ended well."""
        uri = self.uri_of(file)
        if uri not in self.paths_out:
            self.stage([], [uri])
        return self.paths_out[uri]

    def uri_of(self, file: Any) -> str:
        """In the spelling of Airflow, which is that of inlets and outlets."""
        text = getattr(file, "uri", file)
        return self.names.get(text) or Asset(uri=text).uri

    def stage(self, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        """All that the DAG says of this task, the first time, and these files. Raises AirflowException for what cannot be had."""
        wanted, made = dict.fromkeys(inputs), dict.fromkeys(outputs)
        for uri in (*wanted, *made):
            if not scheme_of(uri):
                raise AirflowException(no_file(uri))
        if not self.asked:
            self.asked = True
            staged = self.calls.declared()
            self._take(staged)
            self._leave_old(staged)
        unstaged = [uri for uri in wanted if uri not in self.paths_in and uri not in self.newer]
        self._take(self.calls.own(unstaged, [uri for uri in made if uri not in self.paths_out]))
        for uri in wanted:
            if uri not in self.paths_in:
                self.paths_in[uri] = self._fetched(uri)
        for uri in made:
            if uri not in self.paths_out:
                self.loose_out[uri] = self.paths_out[uri] = self._beside("out", uri)

    def finish(self) -> None:
        """The task ended well: what it made is handed over. Raises AirflowException if it is not all there."""
        if self.over:
            return
        self.calls.hand_over()
        loose = self._loose()
        tell = loose.mark if self.calls.are_read() else loose.handed_over
        for uri in self.paths_out.keys() - self.loose_out.keys():
            tell(uri)
        for uri, path in self.loose_out.items():
            loose.put(path, uri)
        self._close()

    def fail(self, message: str) -> None:
        """It did not. It gives back the staged inputs; never raises."""
        if not self.over:
            self.calls.give_back(message)
            self._close()

    def _take(self, staged: Iterable[Called]) -> None:
        for called in staged:
            uris = {name: uri for uri, name in called.of.part.files.items()}
            self.paths_in |= {uris[each.lfn]: Path(each.path) for each in called.view.inputs if each.lfn in uris and each.path}
            self.paths_out |= {uris[each.lfn]: Path(each.path) for each in called.view.outputs if each.lfn in uris}

    def _leave_old(self, staged: Iterable[Called]) -> None:
        """Does not take from the service a file that was made anew without it. The service may fetch again a file that it only fetched,
        by a run of its own.
        """
        loose, task = self._loose(), self.calls.attempt.task_id
        for called in staged:
            for uri in [uri for uri in called.of.part.files if uri in self.paths_in and loose.is_newer(uri)]:
                del self.paths_in[uri]
                if not called.of.part.after:
                    self.newer.add(uri)
                    log.warning("%s fetches %s itself, for its maker put it there without the service", task, uri)

    def _fetched(self, uri: str) -> Path:
        why = self.calls.why.get(uri) or self.calls.refused
        if self.calls.away and uri in self.calls.only_there():
            text = f"{uri} was made earlier in this DagRun and is held by the service, which is away: {why}"
            raise AirflowException(f"{text}. Nothing has to be made again: clear this task when the service is back")
        try:
            return self._loose().fetch(uri, self._beside("in", uri))
        except AirflowException as problem:
            if not why:
                raise
            raise AirflowException(f"{uri} is not to be had. The service: {why}. The task itself: {problem}") from None
        except Exception as problem:  # whatever Airflow's own hooks raise names no URI
            text = f"{uri} is not to be had. The task itself: {type(problem).__name__}: {problem}"
            raise AirflowException(f"{text}. The service: {why}" if why else text) from problem

    def _loose(self) -> Loose:
        return service.loose_of(self.calls.dag, self.calls.attempt.run_id, objects=self.calls.runs is not None)

    def _beside(self, kind: str, uri: str) -> Path:
        """A place in a directory of this try's own, with the file's own name."""
        if self.scratch is None:
            self.scratch = Path(tempfile.mkdtemp(prefix="stager-task-"))
        place = self.scratch / kind / hashlib.sha256(uri.encode()).hexdigest()[:12]
        place.mkdir(parents=True, exist_ok=True)
        return place / uri.rpartition("/")[2]

    def _close(self) -> None:
        self.over = True
        if self.calls.watch is not None:
            self.calls.watch.leave()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        OPEN.pop(self.calls.attempt.ident, None)


def no_file(uri: str) -> str:
    scheme = uri.partition(":")[0]
    if scheme in SCHEMES:
        return f"{uri} is no file that could be staged: write {scheme}://HOST/PATH of a single file, without ? and #"
    near = difflib.get_close_matches(scheme, SCHEMES, 1)
    hint = f"; did you mean {near[0]}://?" if near else ""
    return f"{uri} is no file that could be staged: stager knows {', '.join(SCHEMES)}{hint}"


# Of this process. A process runs one try at a time, unless a whole DAG is tested in it.
OPEN: dict[str, TaskFiles] = {}


def files_of(context: Mapping[str, Any]) -> TaskFiles:
    """Of the try that this context is of."""
    ti = context["ti"]
    ident = str(ti.id)
    if ident not in OPEN:
        index = -1 if ti.map_index is None else ti.map_index
        attempt = Try(ti.dag_id, ti.run_id, ti.task_id, index, ti.try_number, ident)
        OPEN[ident] = TaskFiles(Calls(attempt, dag_fact(ti.task.dag)), names_of(ti.task))
    return OPEN[ident]


def names_of(task: Any) -> dict[str, str]:
    """URIs of its Assets by their names."""
    assets = [asset for asset in (*task.inlets, *task.outlets) if isinstance(getattr(asset, "uri", None), str)]
    return {asset.name: asset.uri for asset in assets}
