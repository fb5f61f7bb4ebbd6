"""Images of registries: what a tag means now, and an archive of that, pulled once and kept beside the unpacked images.

May know: skopeo, one directory. One rule: an archive is called by the digest of its image and written the same by whoever pulls it, so
that jobs that ran in it are known again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from stager.model.errors import Denied, InvalidInput, Refused, StagerError, Transient
from stager.ports import RegistryImage
from stager.worker.image_file import ARCHITECTURE_CODE, own_architecture
from stager.worker.images import ASKED, PULLED

SCHEME = "docker://"
NAME = re.compile(r"docker://(?P<name>[^/@\s]+(?:/[^/@\s:]+)+|[^/@\s:]+)(?P<tag>:[\w.-]{1,128})?(?P<digest>@sha256:[0-9a-f]{64})?")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ASK_DEADLINE_S = 120.0
LEFT, LEFT_AGE_S = ".pull.", 86400
# What skopeo says, by the error that it means, the first that is in it.
UNKNOWN = ("manifest unknown", "name unknown", "repository name not known", "not found", "does not exist")
NO_LOGIN = ("unauthorized", "authentication required", "access denied", "denied:", "invalid username/password", "forbidden")
OTHER_MACHINE = ("no image found in manifest list for architecture", "no image found in image index for architecture")


class RegistryImages:
    """Asks each name once. `pulled` hears of each image before it is pulled; None: nothing is pulled here."""

    def __init__(self, state_dir: Path, environ: Mapping[str, str], pulling: Callable[[RegistryImage], None] | None) -> None:
        self.directory, self.environ, self.pulling = state_dir / "images" / PULLED, dict(environ), pulling
        self.known: dict[str, RegistryImage] = {}

    def image(self, text: str) -> RegistryImage:
        """Raises StagerError."""
        if text not in self.known:
            self.known[text] = self._pulled(text, self._told(text))
        return self.known[text]

    def _told(self, text: str) -> RegistryImage:
        match = NAME.fullmatch(text)
        if match is None:
            raise InvalidInput(f"{text!r} is no image of a registry; write docker://HOST/NAME:TAG", code="image_unknown", subject=text)
        # skopeo takes no name with both; a digest says it all.
        asked = f"{SCHEME}{match['name']}{match['digest']}" if match["digest"] else text
        said = json.loads(self._skopeo(text, "inspect", "--no-tags", asked))
        digest, machine = str(said.get("Digest")), str(said.get("Architecture"))
        if not DIGEST.fullmatch(digest):
            raise Transient(f"the registry tells no digest of {text}", code="registry_away", subject=text)
        if machine != own_architecture():
            text_of = f"{text} is for {machine}, and this host is {own_architecture()}"
            raise InvalidInput(text_of, code=ARCHITECTURE_CODE, subject=text)
        size_bytes = sum(int(layer.get("Size") or 0) for layer in said.get("LayersData") or ())
        file_name = f"{digest.replace(':', '-')}-{machine}.tar"
        there = self.directory / file_name
        is_here = there.is_file()
        exact = f"{SCHEME}{match['name']}@{digest}"
        return RegistryImage(text, exact, there.stat().st_size if is_here else size_bytes, str(self.directory), file_name, is_here)

    def _pulled(self, text: str, image: RegistryImage) -> RegistryImage:
        if self.pulling is None:
            return image
        if image.is_here:
            # So that nobody takes it away before the submit. Its own times are what it is known by.
            (self.directory.parent / f"{ASKED}{image.file_name}").touch()
            return image
        self.pulling(image)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=LEFT) as place:
            self._clear(os.stat(place).st_mtime)
            layout, fresh = Path(place) / "layout", Path(place) / "image.tar"
            self._skopeo(text, "copy", "--quiet", image.exact, f"oci:{layout}:image", deadline_s=None)
            pack(layout, fresh)
            os.replace(fresh, self.directory / image.file_name)
        size_bytes = (self.directory / image.file_name).stat().st_size
        return RegistryImage(image.name, image.exact, size_bytes, image.directory, image.file_name, True)

    def _clear(self, now: float) -> None:
        """What pulls that were killed have left."""
        for left in self.directory.glob(f"{LEFT}*"):
            if left.stat().st_mtime < now - LEFT_AGE_S:
                shutil.rmtree(left, ignore_errors=True)

    def _skopeo(self, text: str, *words: str, deadline_s: float | None = ASK_DEADLINE_S) -> str:
        program = shutil.which("skopeo", path=self.environ.get("PATH"))
        if program is None:
            what = "images of registries are asked for by skopeo, which this host lacks; whoever looks after it installs it"
            raise Refused(f"{what}, or name a file that `docker save` wrote", code="skopeo_missing", subject=text)
        try:
            done = subprocess.run(
                [program, *words],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired as problem:
            raise Transient(f"the registry of {text} does not answer", code="registry_away", subject=text) from problem
        if done.returncode != 0:
            raise problem_of(text, done.stderr)
        return done.stdout


def problem_of(text: str, complaint: str) -> StagerError:
    """Sorted by who must act."""
    said = complaint.strip().rpartition("\n")[2]
    told = re.search(r'msg="(.*)"$', said)
    why = told[1].replace('\\"', '"') if told else said
    low = why.lower()
    if any(words in low for words in OTHER_MACHINE):
        return InvalidInput(f"{text} is not for {own_architecture()}, which this host is", code=ARCHITECTURE_CODE, subject=text)
    if any(words in low for words in NO_LOGIN):
        host = text.removeprefix(SCHEME).partition("/")[0]
        what = f"the registry refuses {text}: log in (skopeo login {host}), or see whether the name is right"
        return Denied(f"{what} ({why})", code="registry_denied", subject=text)
    if any(words in low for words in UNKNOWN):
        return InvalidInput(f"the registry has no {text}: see whether name and tag are right ({why})", code="image_unknown", subject=text)
    if "policy.json" in low:
        return Refused(f"skopeo has no policy on this host; whoever looks after it mends that ({why})", code="skopeo_policy", subject=text)
    return Transient(f"the registry of {text} cannot be asked: {why}", code="registry_away", subject=text)


def pack(layout: Path, archive: Path) -> None:
    """The same bytes for the same files, whenever and by whom."""
    names = sorted(str(path.relative_to(layout)) for path in layout.rglob("*") if path.is_file())
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as packed:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = (layout / name).stat().st_size
            with (layout / name).open("rb") as stream:
                packed.addfile(entry, stream)
