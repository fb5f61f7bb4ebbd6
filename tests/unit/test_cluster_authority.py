"""The authority of a cluster: whom its certificates name, and who can read its keys."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from stager.adapters.authority import Authority
from stager.cli.main import stager
from stager.model.errors import InvalidInput, Refused


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "cluster")
    made.make("survey")
    return made


def test_a_certificate_names_its_role_and_nothing_else(authority: Authority, tmp_path: Path) -> None:
    for role, named in (("scheduler", []), ("node/io-1", ["node.stager"]), ("pool/alice", []), ("metrics/prometheus", [])):
        leaf = authority.issue(role, tmp_path / "tls")
        certificate = x509.load_pem_x509_certificate((leaf.dir / "cert.pem").read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [name.value for name in names] == [f"stager://survey/{role}", *named]
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        certificate.verify_directly_issued_by(authority.certificate())
        # From a day before, for hosts whose clocks are behind.
        assert 90 <= (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days <= 91


@pytest.mark.parametrize(
    "role", ["", "Scheduler", "node", "node/", "node/a/b", "node/a b", "pool/../x", "root/x", "scheduler/x", "metrics", "metrics/"]
)
def test_what_is_no_role_gets_no_certificate(authority: Authority, tmp_path: Path, role: str) -> None:
    with pytest.raises(InvalidInput, match="no role"):
        authority.issue(role, tmp_path / "tls")
    assert not (tmp_path / "tls").exists()


def test_keys_are_their_owners_and_the_authoritys_stays_where_it_is(authority: Authority, tmp_path: Path) -> None:
    authority.issue("scheduler", tmp_path / "tls")
    modes = {path.name: path.stat().st_mode & 0o777 for path in [*(tmp_path / "cluster").iterdir(), *(tmp_path / "tls").iterdir()]}
    assert modes == {"ca-key.pem": 0o600, "ca.pem": 0o644, "cert.pem": 0o644, "key.pem": 0o600}
    assert (tmp_path / "cluster").stat().st_mode & 0o077 == 0
    key = (authority.root / "ca-key.pem").read_bytes()
    assert all(path.read_bytes() != key for path in (tmp_path / "tls").iterdir())


def test_a_second_authority_is_refused_and_the_first_one_stays(authority: Authority) -> None:
    before = authority.fingerprint()
    with pytest.raises(Refused, match="holds an authority already"):
        authority.make("other")
    assert (authority.fingerprint(), authority.cluster()) == (before, "survey")


def test_the_commands_make_what_openssl_accepts(tmp_path: Path) -> None:
    def told(*words: str) -> dict[str, object]:
        outcome = CliRunner().invoke(stager, ["cluster", *words, "--state-dir", str(tmp_path / "state"), "--json"])
        assert outcome.exit_code == 0, outcome.output
        said: dict[str, object] = json.loads(outcome.stdout)
        return said

    made = told("init", "--name", "c1")
    assert (made["cluster"], made["role"], made["dir"]) == ("c1", "scheduler", str(tmp_path / "state/tls"))
    leaf = told("certify", "node/a", "--out", str(tmp_path / "a"), "--days", "3")
    assert leaf["ca_sha256"] == made["ca_sha256"]
    argv = ["openssl", "verify", "-x509_strict", "-CAfile", str(tmp_path / "a/ca.pem"), str(tmp_path / "a/cert.pem")]
    verified = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_without_a_cluster_the_command_says_how_to_make_one(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(stager, ["cluster", "certify", "node/a", "--out", str(tmp_path / "a"), "--state-dir", str(tmp_path)])
    assert isinstance(outcome.exception, InvalidInput) and "stager cluster init" in str(outcome.exception)


def test_without_cryptography_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InvalidInput, match=r"pip install 'stager\[cluster\]'"):
        Authority(tmp_path)


def test_commands_that_need_no_certificate_do_not_import_cryptography() -> None:
    code = "import sys, stager.service.app, stager.cli.submit, stager.cli.cluster; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
