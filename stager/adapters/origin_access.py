"""The OriginAccess port: stat, list and probe of origins through `stager-ionode origin`, so both planes see the same.

May know: origin_config, the data plane's program. One rule: a configuration may hold secrets and goes by standard input only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stager.adapters.binary import find_ionode
from stager.adapters.line_process import Broken, LineProcess, Silent
from stager.adapters.origin_config import resolve
from stager.model.errors import Fault, InvalidInput, Transient, error_from
from stager.model.workflow import Origin
from stager.ports import DirectoryListing, LeftOut, OriginEntry, Probe
from stager.wire.node import NodeError

CALL_DEADLINE_S = 600.0


class IonodeOriginAccess:
    """By one process that keeps its connections from call to call, so that a submit logs in once. They are parallel inside it, so batch the
    paths. It ends soon after the last call.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = dict(environ)
        self.process = LineProcess([find_ionode(environ), "origin", "serve"])
        self.configs: dict[Origin, dict[str, Any]] = {}

    def config(self, origin: Origin) -> dict[str, Any]:
        """Resolved once an origin. May hold secrets."""
        if origin not in self.configs:
            self.configs[origin] = resolve(origin, self.environ)
        return self.configs[origin]

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        if not paths:
            return []
        answer = self._ask("stat", origin, {"paths": list(paths)})
        return [fault_of(entry["error"]) if "error" in entry else entry_of(entry) for entry in answer["entries"]]

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 1_000_000) -> DirectoryListing:
        answer = self._ask("list", origin, {"prefix": prefix, "recursive": recursive, "limit": limit})
        if answer["truncated"]:
            text = f"more than {limit} files are below {prefix or '/'!r} at the origin {origin.name!r}; name a narrower prefix"
            raise InvalidInput(text, code="bad_request", subject=prefix)
        files = [entry_of(entry) for entry in answer["entries"] if entry["kind"] == "file"]
        return DirectoryListing(files, [LeftOut(left["path"], left["why"], left["directory"]) for left in answer["left_out"]])

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        answer = self._ask("probe", origin, {"path": path, "write": write})
        findings = tuple(fault_of(entry) for entry in answer["findings"])
        return Probe(answer["reachable"], answer["writable"], answer["free_bytes"], findings, answer.get("file_system") or "")

    def _ask(self, action: str, origin: Origin, request: Mapping[str, Any]) -> dict[str, Any]:
        document = msgspec.json.encode({"action": action, "origin": self.config(origin), "request": request})
        try:
            answer: dict[str, Any] = msgspec.json.decode(self.process.ask(document, CALL_DEADLINE_S))
        except Silent as problem:
            text = f"the origin {origin.name!r} did not answer {action} within {CALL_DEADLINE_S:.0f} s"
            raise Transient(text, code="timeout", subject=origin.name) from problem
        except Broken as problem:
            text = f"asking the origin {origin.name!r} failed: {problem}"
            raise Transient(text, code="io_error", subject=origin.name) from None
        if "error" in answer:
            fault = fault_of(answer["error"])
            raise error_from(Fault(fault.error_class, fault.code, f"origin {origin.name!r}: {fault.message}", fault.subject))
        return answer


def entry_of(entry: Mapping[str, Any]) -> OriginEntry:
    return OriginEntry(entry["path"], entry["size_bytes"], entry["token"], entry["kind"], entry["settled"], entry.get("mtime_ns"))


def fault_of(entry: Mapping[str, Any]) -> Fault:
    return msgspec.convert(entry, NodeError).fault()
