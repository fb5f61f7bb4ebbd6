"""What a workflow that a tenant submitted may not do (docs/operating/serve.md): each refusal, and what passes right beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.public_hosts import check_public, is_public
from stager.model.errors import Denied, Fault, Refused, Transient
from stager.model.files import Destination, File, Location, Source
from stager.model.tenants import Registered, Tenant
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.ports import DirectoryListing, OriginEntry, Probe
from stager.service.access_policy import AccessPolicy, Placed, TenantAccess, translated
from stager.service.tenancy import check_roots

KEY = "/etc/stager/alice"
LAB = Registered(OriginKind.SFTP, "sftp://me@lab/data", f"key:{KEY}", (("known_hosts", "/etc/stager/known_hosts"),))
MINIO = Registered(OriginKind.S3, "s3://bucket/in", "env:LAB", (("allow_http", "true"), ("endpoint", "http://127.0.0.1:9000")))
INSIDE = Registered(OriginKind.HTTP, "http://127.0.0.1:8080/archive")


def access_policy(*roots: Path | str, origins: tuple[Registered, ...] = (LAB, MINIO, INSIDE), hosts: Any = None) -> AccessPolicy:
    names = {"archive.example.org": ["93.184.216.34", "2606:2800:220:1::1"], "inner.example.org": ["93.184.216.34", "10.0.0.5"]}
    lookup = lambda host: names.get(host) or [host]  # noqa: E731
    return AccessPolicy(
        Tenant("alice", file_roots=tuple(map(str, roots)), origins=origins), {"LAB_ACCESS_KEY_ID": "k", "LAB_SECRET_ACCESS_KEY": "s"},
        hosts or (lambda host: check_public(host, lookup)),
    )  # fmt: skip


def origin(url: str, credentials: str = "", name: str = "lab", **options: str) -> Origin:
    kinds = {"https": OriginKind.HTTP}
    scheme = url.partition(":")[0]
    return Origin(name, kinds.get(scheme) or OriginKind(scheme), url, credentials, tuple(sorted(options.items())))


def denied(what: Origin, *roots: Path | str) -> Denied:
    with pytest.raises(Denied) as caught:
        access_policy(*roots).place(what)
    return caught.value


# Credentials are only those that the administrator registered.


def test_a_registered_origin_is_used_as_its_administrator_set_it() -> None:
    placed = access_policy().place(origin("sftp://lab/data/deep", bandwidth="1000"))
    assert placed.below == "deep"
    assert (placed.origin.url, placed.origin.credentials) == (LAB.url, LAB.credentials)
    assert dict(placed.origin.options) == {"known_hosts": "/etc/stager/known_hosts", "bandwidth": "1000"}


def test_what_was_placed_is_placed_the_same_again(tmp_path: Path) -> None:
    (tmp_path / "alice").mkdir()
    for what in (
        origin("sftp://lab/data"),
        origin("s3://bucket/in/x"),
        origin("https://archive.example.org/a"),
        origin("s3://open/x", "anonymous"),
        origin(f"file://{tmp_path}/alice/x"),
    ):
        once = access_policy(tmp_path).place(what).origin
        assert access_policy(tmp_path).place(once) == Placed(once), what


@pytest.mark.parametrize(
    "said",
    [
        origin("sftp://me@lab/data", "key:/root/.ssh/id_ed25519"),
        origin("sftp://me@lab/data", "agent"),
        origin("sftp://me@lab/data", known_hosts="/tmp/mine"),
        origin("sftp://me@lab/data", host_key_alias="other"),
        origin("sftp://me@lab/data", connections_max="1000"),
        origin("s3://bucket/in", "profile:default"),
        origin("s3://bucket/in", "anonymous"),
        origin("s3://bucket/in", endpoint="https://evil.example.org"),
        origin("s3://bucket/in", region="evil.example.org/"),
        origin("http://127.0.0.1:8080/archive", "env:AWS"),
        origin("http://127.0.0.1:8080/archive", ca_file="/tmp/ca.pem"),
        origin("https://archive.example.org/a", "env:AWS"),
        origin("https://archive.example.org/a", ca_file="/etc/shadow"),
        origin("s3://open/x", "anonymous", endpoint="http://169.254.169.254"),
    ],
    ids=lambda what: f"{what.url}-{what.credentials}-{what.options}",
)
def test_a_submitted_file_never_says_as_whom_or_by_which_way(said: Origin) -> None:
    problem = denied(said)
    assert problem.code == "origin_denied" and "administrator" in problem.message and said.name in problem.subject


def test_it_may_repeat_what_is_registered() -> None:
    said = origin("sftp://me@lab/data", LAB.credentials, known_hosts="/etc/stager/known_hosts")
    assert access_policy().place(said).origin.credentials == LAB.credentials


@pytest.mark.parametrize(
    "url",
    ["sftp://lab/other", "sftp://lab/data/../etc", "sftp://lab/data/%2e%2e/etc", "sftp://you@lab/data", "sshfs://lab/data", "sftp://lab:2222/data"],
)  # fmt: skip
def test_ssh_goes_nowhere_but_to_registered_origins(url: str) -> None:
    assert "register" in denied(origin(url)).message


@pytest.mark.parametrize("credentials", ["", "env:LAB", "profile:default"])
def test_no_key_of_the_service_signs_for_a_bucket_that_is_not_registered(credentials: str) -> None:
    assert denied(origin("s3://other/x", credentials)).code == "origin_denied"


@pytest.mark.parametrize(("bucket", "region"), [("open", "x/evil.org"), ("open", "a.b"), ("op_en", "us-east-1"), ("OPEN", "us-east-1")])
def test_neither_bucket_nor_region_can_make_another_host_of_amazons(bucket: str, region: str) -> None:
    assert denied(origin(f"s3://{bucket}/x", "anonymous", region=region)).code == "origin_denied"


def test_a_bucket_for_everybody_is_read_without_a_key() -> None:
    config = access_policy().config(origin("s3://open-data/x", "anonymous", region="eu-west-1"))
    assert (config["access_key_id"], config["endpoint"], config["region"]) == ("", None, "eu-west-1")


# File origins only below allowed roots.


def test_file_origins_lie_below_a_root_only(tmp_path: Path) -> None:
    (tmp_path / "alice" / "deep").mkdir(parents=True)
    root = tmp_path / "alice"
    assert access_policy(root).place(origin(f"file://{root}/deep/er")) == Placed(origin(f"file://{root}"), "deep/er")
    for url in (
        f"file://{tmp_path}",
        f"file://{tmp_path}/alice-secret",
        f"file://{root}/../bob",
        f"file://{root}/%2e%2e/bob",
        "file:///etc",
    ):
        assert "not below a directory" in denied(origin(url), root).message, url
    assert "there are none for you" in denied(origin("file:///etc")).message


def test_a_link_out_of_a_root_is_seen_through_and_one_inside_is_followed(tmp_path: Path) -> None:
    root, secret = tmp_path / "alice", tmp_path / "secret"
    (root / "real").mkdir(parents=True)
    secret.mkdir()
    (root / "out").symlink_to(secret)
    (root / "in").symlink_to(root / "real")
    denied(origin(f"file://{root}/out"), root)
    denied(origin(f"file://{root}/out/deeper"), root)
    assert access_policy(root).place(origin(f"file://{root}/in/x")).below == "real/x"


def test_a_link_that_is_put_there_later_is_the_nodes_to_refuse(tmp_path: Path) -> None:
    """The base is the root itself, and what is below it is part of each path: so nothing can be swapped under the node."""
    (tmp_path / "alice").mkdir()
    workflow = workflow_of(origin(f"file://{tmp_path}/alice/sub"))
    found = translated(workflow, access_policy(tmp_path / "alice"))
    assert found.origins["lab"].url == f"file://{tmp_path}/alice"
    assert found.files["in"].sources[0].location.path == "sub/in"
    destination = found.files["out"].destination
    assert destination is not None and destination.location.path == "sub/out"


def test_a_root_may_be_a_link_of_the_administrators(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alice").symlink_to(tmp_path / "real")
    placed = access_policy(tmp_path / "alice").place(origin(f"file://{tmp_path}/alice/x"))
    assert (placed.origin.url, placed.below) == (f"file://{tmp_path}/real", "x")


def test_a_root_and_the_state_directory_never_hold_each_other(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    state.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for root in (tmp_path, tmp_path / "a", state, state / "node", tmp_path / "link", Path("/")):
        with pytest.raises(Refused, match="one inside the other"):
            check_roots(Tenant("alice", file_roots=(str(root),)), state)
    check_roots(Tenant("alice", file_roots=(str(tmp_path / "a" / "state2"),)), state)


def test_the_directory_of_the_workflow_file_is_not_here(tmp_path: Path) -> None:
    assert "did not come with it" in denied(origin("file:///tmp/upload", name="here"), tmp_path).message


# Link-local and loopback URLs are refused, in whatever form.

INNER = """127.0.0.1 127.1.2.3 0.0.0.0 0.1.2.3 10.1.2.3 100.64.0.1 100.100.100.200 169.254.169.254 172.16.0.1 192.168.1.1 192.0.0.192
198.18.0.1 192.88.99.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 ff02::1
2001:db8::1 2001::1 3fff::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 64:ff9b::a9fe:a9fe 2002:7f00:1:: 64:ff9b:1::1 168.63.129.16
::ffff:168.63.129.16""".split()


@pytest.mark.parametrize("address", INNER)
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "2002:101:101::", "64:ff9b::101:101"])
def test_addresses_outside_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", "localhost 127.0.0.1 127.1 2130706433 0x7f000001 017700000001 [::1] [::ffff:127.0.0.1] 0 169.254.169.254 2852039166".split()
)
def test_the_systems_own_resolver_sees_through_every_form(host: str) -> None:
    with pytest.raises(Denied, match="an address that is not of the public internet"):
        check_public(host)


def test_a_host_is_refused_for_any_one_of_its_addresses() -> None:
    told = denied(origin("https://inner.example.org/a")).message
    assert "'inner.example.org' leads to an address that is not of the public internet" in told
    assert "10.0.0.5" not in told, "a stranger learns nothing of the addresses inside"
    assert denied(origin("http://[::1]:80/a")).code == "host_not_public"


def test_a_host_of_the_internet_passes_and_the_node_looks_again_at_each_connection() -> None:
    config = access_policy().config(origin("https://archive.example.org/a"))
    assert config["public_only"] is True and config["bearer_token"] is None
    assert "public_only" not in access_policy().config(origin("http://127.0.0.1:8080/archive/x")), "the administrator's word goes anywhere"


def test_a_host_that_is_not_known_may_be_known_later() -> None:
    with pytest.raises(Transient, match=r"the host 'nowhere.invalid' is not known here \(.+\); check its name, and ask again later"):
        check_public("nowhere.invalid")


# What readers see, and what a run is made of.


def workflow_of(*origins: Origin, spill: str | None = None) -> Workflow:
    name = origins[0].name
    files = {
        "in": File("in", sources=(Source(Location(name, "in"), 3, "t"),), size_bytes=3),
        "out": File("out", destination=Destination(Location(name, "out"))),
    }
    job = Job("j", "j", shell="true", inputs=(JobInput("in", "in"),), outputs=(JobOutput("out", "out"),))
    return Workflow("w", files, {"j": job}, {each.name: each for each in origins}, spill_origin=spill)


def test_origins_that_nothing_uses_are_gone_and_all_that_are_used_are_checked() -> None:
    lab, here = origin("sftp://lab/data/x"), origin("file:///tmp/upload", name="here")
    assert set(translated(workflow_of(lab, here), access_policy()).origins) == {"lab"}
    with pytest.raises(Denied):
        translated(workflow_of(lab, here, spill="here"), access_policy())
    workflow = workflow_of(lab, here)
    leak = replace(workflow.files["out"], destination=Destination(Location("here", "out")))
    with pytest.raises(Denied):
        translated(replace(workflow, files=workflow.files | {"out": leak}), access_policy())


class Asked:
    """An OriginAccess that notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        self.calls.append(("stat", origin.url, tuple(paths)))
        return [OriginEntry(path, 3, "t") for path in paths]

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 0) -> DirectoryListing:
        self.calls.append(("list", origin.url, (prefix,)))
        return DirectoryListing([OriginEntry(f"{prefix}/a", 3, "t")], [])

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        self.calls.append(("probe", origin.url, (path,)))
        return Probe(True, True, None, ())


def test_a_reader_asks_through_the_fence_and_is_answered_by_its_own_paths() -> None:
    inner = Asked()
    access, lab = TenantAccess(access_policy(), inner), origin("sftp://lab/data/deep")
    assert [found.path for found in access.stat(lab, ["a", "b/c"]) if isinstance(found, OriginEntry)] == ["a", "b/c"]
    assert [entry.path for entry in access.list(lab, "raw").files] == ["raw/a"]
    access.probe(lab, "", write=True)
    assert inner.calls == [
        ("stat", LAB.url, ("deep/a", "deep/b/c")),
        ("list", LAB.url, ("deep/raw",)),
        ("probe", LAB.url, ("deep",)),
    ]
    for call in (lambda o: access.stat(o, ["x"]), lambda o: access.list(o, ""), lambda o: access.probe(o, "", write=False)):
        with pytest.raises(Denied):
            call(origin("sftp://lab/elsewhere"))
    assert len(inner.calls) == 3, "what is denied is never asked for"
