"""The files in compose/, without an engine: what they name is there. tests/compose runs them on one."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from stager.adapters.authority import Authority
from tests.testbed.ionode import IoNode
from tests.testbed.places import PROJECT, ionode_binary, needed_program
from tests.unit.test_documented_commands import problem_of

COMPOSE = PROJECT / "compose"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / "compose.yml").read_text())["services"]
ONE_SHOT = {"prepare", "survey"}
METRIC = re.compile(r"\b(?:stager|process|up)(?:_[a-z0-9_]+)?\b(?![(:\"/-])")
OF_PROMETHEUS = {"up"}
REGISTERED = r'\.register(?:_with_unit)?\(\s*"(\w+)", (?:"[^"]*"|\w+), (?:Unit::(\w+))?'
SCRIPTS = sorted(path for path in COMPOSE.glob("images/*/*") if path.read_bytes().startswith(b"#!"))


def test_there_is_what_the_issue_promises() -> None:
    wanted = {"scheduler", "io0", "io1", "io2", "pool", "worker0", "worker1", "lab", "s3", "prometheus"}
    assert set(SERVICES) == wanted | ONE_SHOT
    assert {name for name, service in SERVICES.items() if service["restart"] == "always"} == {"worker0", "worker1"}
    assert {name for name, service in SERVICES.items() if service["restart"] == "no"} == ONE_SHOT


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_rights_and_no_secrets_in_the_open(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"] and service["read_only"] and service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "user", "env_file"} & set(service)
    dockerfile = (COMPOSE / service["build"]["dockerfile"]).read_text()
    assert dockerfile.index("ARG BASE=debian:bookworm-slim") < dockerfile.index("FROM ${BASE}")
    assert [line for line in dockerfile.splitlines() if line.startswith("USER ")] == ["USER 10001:10001"]
    assert not re.search(r"(?i)(secret|password|token|key)\s*[=:]\s*[A-Za-z0-9+/]{16,}", json.dumps(service) + dockerfile)
    assert "healthcheck" in service or name in ONE_SHOT
    # A port of the cluster is open on this machine alone.
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_each_volume_is_used_and_all_that_is_written_is_in_one() -> None:
    document = yaml.safe_load((COMPOSE / "compose.yml").read_text())
    named = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", []) if not mount.startswith(".")}
    assert named == set(document["volumes"])


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where it stands, and its words with the defaults of variables."""
    for name, service in SERVICES.items():
        if "command" in service:
            yield name, [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in service["command"]]
    for path in SCRIPTS:
        for line in path.read_text().splitlines():
            found = re.search(r"\b(stager(?:-ionode)? [a-z].*)", line)
            if found and path.suffix != ".py" and not line.startswith("#"):
                yield path.name, shlex.split(found[1])


def test_commands_and_their_options_exist() -> None:
    told = list(commands())
    assert {words[1] for _, words in told if words[0] == "stager"} == {"serve", "pool", "worker", "cluster"}
    problems = [f"{where}: {problem}" for where, words in told if words[0] == "stager" and (problem := problem_of(words[1:]))]
    assert problems == []
    for where, words in told:
        assert words[0] in ("stager", "stager-ionode") or (COMPOSE / "images/stager" / words[0]).is_file(), where
        if words[0] == "stager-ionode":
            helped = subprocess.run([ionode_binary(), words[1], "--help"], capture_output=True, text=True, check=True).stdout
            assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z0-9-]+", helped)), where


def queries() -> list[tuple[str, str]]:
    """What it is called, and the expression."""
    rules = yaml.safe_load((COMPOSE / "prometheus/rules.yml").read_text())["groups"]
    panels = json.loads((COMPOSE / "grafana/stager.json").read_text())["panels"]
    named = [(rule["alert"], rule["expr"]) for group in rules for rule in group["rules"]]
    return named + [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


def families(text: str) -> set[str]:
    """Names that queries may use; of a histogram, those of its parts."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)", text, re.MULTILINE))
    return {f"{name}{end}" for name, kind in kinds.items() for end in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}


class Prometheus:
    """As its configuration has it call a node: the name that it compares, and its certificate. The files lie in another directory."""

    def __init__(self, address: str, tls: Path) -> None:
        (told,) = (
            job for job in yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())["scrape_configs"] if "tls_config" in job
        )
        files = {key: tls / Path(path).name for key, path in told["tls_config"].items() if key.endswith("_file")}
        assert all(path.startswith("/tls/") for key, path in told["tls_config"].items() if key in files)
        self.base, self.name = f"{told['scheme']}://{address}", told["tls_config"]["server_name"]
        self.context = ssl.create_default_context(cafile=str(files["ca_file"]))
        self.context.load_cert_chain(files["cert_file"], files["key_file"])

    def asks(self, method: str, path: str, name: str = "") -> httpx.Response:
        with httpx.Client(verify=self.context) as client:
            return client.request(method, f"{self.base}{path}", extensions={"sni_hostname": name or self.name})


@pytest.fixture
def prometheus(ionode: Callable[..., IoNode], tmp_path: Path) -> Prometheus:
    authority = Authority(tmp_path / "cluster")
    authority.make("compose")
    authority.issue("node/io0", tmp_path / "io0")
    authority.issue("metrics/prometheus", tmp_path / "prometheus")
    node = ionode(node_id="io0", options=["--tcp", "127.0.0.1:0", "--tls-dir", str(tmp_path / "io0")])
    return Prometheus(node.address, tmp_path / "prometheus")


def test_prometheus_reads_metrics_of_a_node_of_the_cluster_and_nothing_else(prometheus: Prometheus) -> None:
    assert prometheus.asks("GET", "/metrics").text.startswith("# HELP stager_node_")
    for method, path in (("GET", "/v1/state"), ("GET", "/v1/node"), ("POST", "/v1/shutdown"), ("POST", "/metrics")):
        answer = prometheus.asks(method, path)
        assert answer.status_code == 403, path
        assert "the reader of metrics prometheus, which may not do that" in answer.json()["error"]["message"], path
    with pytest.raises(httpx.ConnectError, match="certificate"):
        prometheus.asks("GET", "/metrics", name="another.name")


def test_each_query_asks_for_what_is_exported(prometheus: Prometheus) -> None:
    """A node tells of a family once it has something to tell, so what has not happened yet is looked up where it is registered."""
    sources = "".join(path.read_text() for path in (PROJECT / "ionode/node/src/metrics").glob("*.rs"))
    registered = {"_".join(filter(None, (name, unit.lower()))) for name, unit in re.findall(REGISTERED, sources)}
    exported = families(prometheus.asks("GET", "/metrics").text) | {f"stager_node_{name}_total" for name in registered}
    scheduler = (PROJECT / "stager/service/rest/metrics.py").read_text()
    for kind, name in re.findall(r'(Counter|Histogram|GaugeMetricFamily)\(\s*"(stager_\w+)"', scheduler):
        exported |= {"Counter": {f"{name}_total"}, "Histogram": {f"{name}_bucket", f"{name}_sum", f"{name}_count"}}.get(kind, {name})
    exported |= set(re.findall(r'\("(stager_node_\w+)", "', scheduler)) | OF_PROMETHEUS
    asked = queries()
    assert len(asked) > 25
    unknown = {name: sorted(set(METRIC.findall(bare(query))) - exported) for name, query in asked}
    assert {name: names for name, names in unknown.items() if names} == {}
    assert all(METRIC.findall(bare(query)) or "ALERTS" in query for _, query in asked)


def bare(query: str) -> str:
    """Without what is in quotes."""
    return re.sub(r'"[^"]*"', '""', query)


def test_states_that_queries_name_exist() -> None:
    """A query for a state that there is not never finds anything, and nobody notices."""
    from stager import wire
    from stager.scheduler.states import JobState

    known = {"stager_jobs": {str(state) for state in JobState}, "stager_ledger_bytes": set(wire.LedgerTotals.model_fields)}
    named = [
        (family, state)
        for _, query in queries()
        for family, state in re.findall(r'(stager_jobs|stager_ledger_bytes)\{state="(\w+)"\}', query)
    ]
    assert len(named) >= 5 and all(state in known[family] for family, state in named)


def test_prometheus_asks_services_that_there_are() -> None:
    told = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())
    targets = {target for job in told["scrape_configs"] for each in job["static_configs"] for target in each["targets"]}
    assert targets == {"scheduler:7433", "io0:7411", "io1:7411", "io2:7411"}
    assert {job["job_name"] for job in told["scrape_configs"]} == set(
        re.findall(r'job="([\w-]+)"', " ".join(query for _, query in queries()))
    )


def test_promtool_takes_the_rules() -> None:
    promtool = needed_program("promtool", "prometheus")
    subprocess.run([promtool, "check", "rules", COMPOSE / "prometheus/rules.yml"], check=True, capture_output=True)


def test_docker_compose_takes_the_file() -> None:
    subprocess.run([needed_program("docker-compose", "docker-compose"), "config", "-q"], cwd=COMPOSE, check=True, capture_output=True)


def test_the_workflow_gets_the_origins_of_the_cluster() -> None:
    """By the script that lays out what images are built from, which fails where the workflow changes."""
    text = (PROJECT / "scripts/compose_files.sh").read_text()
    (program,) = re.findall(r"<<'END_OF_PYTHON'\n(.*)END_OF_PYTHON", text, re.DOTALL)
    workflow = PROJECT / "workflows/montage/workflow.yml"
    said = subprocess.run(["python3", "-", workflow, "/dev/stdout"], input=program, capture_output=True, text=True, check=True).stdout
    made, given = yaml.safe_load(said), yaml.safe_load(workflow.read_text())
    assert set(made["origins"]) == {"survey", "code", "results"}
    assert "here:" not in said and said.count("results:mosaic/") == 4
    assert made["jobs"].keys() == given["jobs"].keys()
