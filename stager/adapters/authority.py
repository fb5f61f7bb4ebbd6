"""The authority of a cluster: its key, and the certificates that say which role their holder has (docs/formats/ionode-api.md, "Roles").

May know: cryptography, which is imported when it is needed: most commands never do. One rule: a key is never written where others can
read it, not even for a moment, and never leaves its directory.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from stager.adapters.cluster_tls import CA, CERTIFICATE, KEY
from stager.adapters.whole_file import write_private, write_public
from stager.model.errors import InvalidInput, Refused

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_KEY = "ca-key.pem"
SCHEDULER = "scheduler"
# The pool of whoever runs the scheduler.
OWN_POOL = "pool/owner"
# In the certificates of all nodes, for callers that compare nothing but names of hosts, such as Prometheus.
NODE_NAME = "node.stager"
NAMED_ROLES = ("node", "pool", "metrics")
AUTHORITY_DAYS, LEAF_DAYS = 3650, 90
# Clocks of hosts differ, by a wrong time zone as well: a certificate of now was good yesterday, too.
SKEW = timedelta(days=1)
NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate that was made. `role` as in its URI: `scheduler`, `node/ID`, `pool/NAME`, `metrics/NAME`."""

    cluster: str
    role: str
    dir: Path
    expires_at: datetime
    ca_sha256: str


class Authority:
    """Of one cluster, in a directory of its own: `ca.pem`, and `ca-key.pem` with mode 0600."""

    def __init__(self, root: Path) -> None:
        need_cryptography()
        self.root = root

    @property
    def is_there(self) -> bool:
        return (self.root / CA).exists()

    def make(self, cluster: str) -> None:
        """Raises Refused where one is: its certificates would be worth nothing any more."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import NameOID

        if not NAME.fullmatch(cluster):
            raise InvalidInput(f"{cluster!r} is no name of a cluster; use letters, digits and ._-", subject="name")
        if self.is_there:
            text = f"{self.root} holds an authority already, and every certificate that it has signed would be worth nothing"
            raise Refused(f"{text}; use it, or remove the directory first", code="cluster_exists", subject=str(self.root))
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = new_key()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"stager cluster {cluster}")])
        now = datetime.now(UTC)
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"stager://{cluster}")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(self.root / CA_KEY, pem_of(key))
        # Last: an authority without its certificate is none, and is made again.
        write_public(self.root / CA, certificate.public_bytes(serialization.Encoding.PEM))

    def certificate(self) -> x509.Certificate:
        from cryptography import x509

        try:
            return x509.load_pem_x509_certificate((self.root / CA).read_bytes())
        except FileNotFoundError as problem:
            text = f"there is no cluster in {self.root}"
            raise InvalidInput(f"{text}; make one with `stager cluster init`", code="no_cluster", subject=str(self.root)) from problem

    def cluster(self) -> str:
        from cryptography import x509

        names = self.certificate().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.UniformResourceIdentifier)[0].removeprefix("stager://")

    def fingerprint(self) -> str:
        from cryptography.hazmat.primitives import hashes

        return self.certificate().fingerprint(hashes.SHA256()).hex()

    def issue(self, role: str, into: Path, days: int = LEAF_DAYS) -> Leaf:
        """A new key and its certificate as a `--tls-dir`. What was there is replaced, the key last: a node takes up whole sets only."""
        from cryptography.hazmat.primitives import serialization

        key = new_key()
        certificate = self.sign(role, key.public_key(), days)
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_public(into / CA, (self.root / CA).read_bytes())
        write_public(into / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
        write_private(into / KEY, pem_of(key))
        return Leaf(self.cluster(), role, into, certificate.not_valid_after_utc, self.fingerprint())

    def sign_request(self, csr: str, role: str, days: int = LEAF_DAYS) -> str:
        """The certificate as PEM. Of the request only its public key counts."""
        from cryptography.hazmat.primitives import serialization

        return self.sign(role, key_of(csr), days).public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, role: str, key: ec.EllipticCurvePublicKey, days: int) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        check_role(role)
        if not 1 <= days <= AUTHORITY_DAYS:
            raise InvalidInput(f"a certificate is good for 1 to {AUTHORITY_DAYS} days, not for {days}", subject="days")
        authority = self.certificate()
        signer = serialization.load_pem_private_key((self.root / CA_KEY).read_bytes(), None)
        assert isinstance(signer, type(new_key()))
        now = datetime.now(UTC)
        # A subject that is short and means nothing: who holds it stands in the URI.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(8))])
        uri = x509.UniformResourceIdentifier(f"stager://{self.cluster()}/{role}")
        is_node = role.startswith("node/")
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(min(now + timedelta(days=days), authority.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([uri, *([x509.DNSName(NODE_NAME)] if is_node else [])]), critical=False)
            .sign(signer, hashes.SHA256())
        )


def key_of(csr: str) -> ec.EllipticCurvePublicKey:
    """Of a request that its holder has signed. Raises InvalidInput."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        request = x509.load_pem_x509_csr(csr.encode())
        key = request.public_key()
        good = request.is_signature_valid
    except ValueError:
        good, key = False, None
    if not good or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidInput("the request for a certificate is none that is signed by a key on the curve P-256", subject="csr")
    return key


def request_by(key: ec.EllipticCurvePrivateKey) -> str:
    """For a certificate of this key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def digest_of_key(key: ec.EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def kept_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key in that file, which is made where there is none."""
    from cryptography.hazmat.primitives import serialization

    try:
        found = serialization.load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        found = new_key()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, pem_of(found))
    assert isinstance(found, type(new_key())), path
    return found


def check_role(role: str) -> None:
    kind, _, name = role.partition("/")
    if role != SCHEDULER and not (kind in NAMED_ROLES and NAME.fullmatch(name)):
        raise InvalidInput(f"{role!r} is no role; write scheduler, node/ID, pool/NAME or metrics/NAME", subject="role")


def need_cryptography() -> None:
    """Raises InvalidInput that says what to install."""
    try:
        import cryptography  # noqa: F401
    except ImportError as problem:
        text = "certificates need cryptography, which is not installed here; `pip install 'stager[cluster]'`"
        raise InvalidInput(text, code="not_installed", subject="cryptography") from problem


def new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
