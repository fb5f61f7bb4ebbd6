"""The recipes of CONTRIBUTING.md: a kind of origin, a format, an event or a command that was added in one place is known in all others."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import get_args

import pytest

from stager import rest
from stager.adapters.origin_config import resolve
from stager.model.errors import InvalidInput
from stager.model.workflow import Origin, OriginKind
from stager.readers import native_origins, native_spec
from stager.readers.sniff import WorkflowFormat, sniff
from stager.runtime.live_world import TO_NODES
from stager.runtime.node_calls import CALLS
from stager.scheduler import apply_commands, apply_events
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.timeline import TELL
from stager.sim.doing import DOERS

ROOT = Path(__file__).parents[2]
WIRE = ROOT / "tests/conformance/wire"
SCHEMA = json.loads((ROOT / "docs/formats/workflow.schema.json").read_text())
EVENTS, COMMANDS = set(get_args(ev.Event)), set(get_args(cmd.Command))
# They are of no run, no file and no transfer, so no timeline has a line for them.
OF_NODES = {ev.NodeReported, ev.NodeLost, ev.NodeGone, ev.NodeDraining, ev.CapacityChanged}
OF_HOSTS = {ev.HostReported, ev.HostLost, ev.HostDraining, ev.HostGone}
UNTOLD = {ev.SchedulerStarted, ev.PolicySet, ev.TenantsSet, ev.ResultsKept, ev.Woken, ev.SpillErased, cmd.WakeAt} | OF_NODES | OF_HOSTS
# What tells a workflow file of each format apart.
BEGINNINGS = {
    WorkflowFormat.NATIVE: "stager: 1\n",
    WorkflowFormat.PEGASUS: 'pegasus: "5.0"\n',
    WorkflowFormat.WFCOMMONS: '{"schemaVersion": "1.5", "workflow": {}}',
}


def test_the_native_reader_knows_every_kind_of_origin() -> None:
    assert set(native_origins.KINDS.values()) == set(OriginKind) == set(native_origins.CREDENTIAL_KINDS)
    assert set(native_spec.ORIGIN_KEYS) == {kind.value for kind in OriginKind}


@pytest.mark.parametrize("kind", OriginKind)
def test_every_kind_of_origin_is_in_the_schema_the_pages_and_the_golden_messages(kind: OriginKind) -> None:
    assert {"$ref": f"#/$defs/origin_{kind.value}"} in SCHEMA["$defs"]["origin"]["oneOf"]
    assert re.search(rf"`{kind.value}\b", (ROOT / "docs/formats/workflow.md").read_text())
    assert f'"kind": "{kind.value}"' in (ROOT / "docs/formats/ionode-api.md").read_text()
    assert json.loads((WIRE / f"origin.{kind.value}.request.json").read_text())["kind"] == kind.value


@pytest.mark.parametrize("kind", OriginKind)
def test_every_kind_of_origin_becomes_a_description_for_the_node(kind: OriginKind) -> None:
    url = "file:///d" if kind is OriginKind.FILE else f"{kind.value}://host/d"
    origin = Origin("o", kind, url, "anonymous" if kind is OriginKind.S3 else "")
    assert resolve(origin, {"STAGER_SSH_CONFIG": "/dev/null", "PATH": os.environ["PATH"]})["kind"] == kind.value


@pytest.mark.parametrize("found", WorkflowFormat)
def test_every_format_is_told_by_its_content_and_taken_by_the_rest_api(found: WorkflowFormat, tmp_path: Path) -> None:
    (tmp_path / "w").write_text(BEGINNINGS[found])
    assert sniff(tmp_path / "w") is found
    assert rest.WorkflowText.model_validate({"workflow": "x", "format": found.value}).format == found.value
    (tmp_path / "w").write_text("neither: 1\n")
    with pytest.raises(InvalidInput):
        sniff(tmp_path / "w")


def test_every_event_and_every_command_is_applied() -> None:
    assert set(apply_events.APPLY) == EVENTS
    assert set(apply_commands.APPLY) == COMMANDS


def test_every_command_is_done_in_the_simulated_world_and_what_is_a_nodes_is_called_at_it() -> None:
    assert set(DOERS) == COMMANDS
    assert set(CALLS) == TO_NODES


def test_every_event_and_every_command_of_a_run_has_its_line_in_a_timeline() -> None:
    assert set(TELL) == (EVENTS | COMMANDS) - UNTOLD
