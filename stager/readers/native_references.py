"""How files are written in a native workflow: names, `origin:path`, globs, directories, destinations.

May know: templates, paths, forms. One rule: what a text means is decided by the text as written, before any value is put in; so no value
can turn into an origin, a glob or a way out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from stager.model.files import OnExists
from stager.model.workflow import Origin, OriginKind
from stager.readers.lines import Node, nearest
from stager.readers.native_form import Form
from stager.readers.native_origins import check_query
from stager.readers.native_spec import FINAL_KEYS, DestinationSpec, Reference
from stager.readers.native_template import Template, template_of
from stager.readers.paths import clean_path, escape_wildcards, has_wildcard

LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Names:
    """The names that texts may refer to: the origins of the file, the foreach keys of the job (none outside jobs), and the parameters,
    whose values are put in here.
    """

    form: Form
    origins: Mapping[str, Origin]
    keys: Collection[str] = ()

    def within(self, keys: Collection[str]) -> Names:
        return Names(self.form, self.origins, keys)

    @property
    def known(self) -> Collection[str]:
        """What may stand in braces."""
        return (*self.keys, *self.form.params) if self.form.params else self.keys

    def template(self, text: str, node: Node, key: str) -> Template | None:
        """A text that names jobs or files; a finding and None where it cannot be read."""
        found = self.written(text, node, key)
        return None if found is None else self.form.filled(found, node, key)

    def written(self, text: str, node: Node, key: str) -> Template | None:
        """As it is written, the parameters still holes."""
        try:
            return template_of(text, self.known, strict=True)
        except ValueError as error:
            self.form.findings.note(node.place, key, str(error))
            return None

    def value(self, node: Node, key: str) -> Template | None:
        """A text for a program: braces that are not ours stay."""
        try:
            found = template_of(self.form.text(node, key), self.known, strict=False)
        except ValueError as error:
            self.form.findings.note(node.place, key, str(error))
            return None
        return self.form.filled(found, node, key)

    def split(self, text: str, node: Node, key: str) -> tuple[str, str] | None:
        """(origin, path); origin is empty for a plain name."""
        match = LOCATION.fullmatch(text)
        if not match:
            return "", text
        if match[1] in self.origins:
            return match[1], match[2]
        if match[2].startswith("//"):
            fix = "URLs go under 'origins:', files are written origin:path"
        else:
            close = nearest(match[1], self.origins).removeprefix("; ") or "name it under 'origins:';"
            fix = f"{close} a file whose name has a colon is written ./{text}"
        self.form.findings.note(node.place, key, f"there is no origin {match[1]!r}; {fix}")
        return None

    def reference(self, node: Node, key: str, *, literal: bool = False) -> Reference | None:
        text = self.form.text(node, key)
        parts = self.split(text, node, key) if text else None
        if parts is None:
            return None
        origin, path = parts
        if not origin and path.startswith(("/", "~/")):
            self.form.findings.note(node.place, key, no_input(text))
            return None
        directory = path.endswith("/") or (bool(origin) and not path)
        bare = path.rstrip("/")
        whole = bool(origin) and bare in ("", ".")
        written = Template(("",)) if whole else self.written(bare, node, key)
        if written is None:
            return None
        glob = not literal and not whole and any(isinstance(piece, str) and has_wildcard(piece) for piece in written.pieces)
        filled = self.form.filled(written, node, key, escape_wildcards if glob else None)
        template = filled if whole or filled is None else self.cleaned(filled, node, key)
        if template is None:
            return None
        reference = Reference(template, origin, glob, directory or whole)
        return reference if self.can_be_asked(reference, path, node, key) else None

    def can_be_asked(self, reference: Reference, path: str, node: Node, key: str) -> bool:
        """Of a web server only single files can be."""
        origin = self.origins.get(reference.origin)
        if origin is None or origin.kind is not OriginKind.HTTP:
            return True
        try:
            check_query(path.partition("?")[2])
        except ValueError as error:
            self.form.findings.note(node.place, key, str(error))
            return False
        if not reference.glob and not reference.directory:
            return True
        what = f"origin {origin.name!r} is http, which cannot be listed; name its files one by one"
        sign = "" if reference.directory else "; with literal: true the characters *, ? and [ are themselves"
        query = " (a query needs queries: true at the origin as well)" if sign and "?" in path else ""
        self.form.findings.note(node.place, key, what + sign + query)
        return False

    def path(self, text: str, node: Node, key: str) -> Template | None:
        """A path template; what is literal is checked and cleaned now, the rest when the values are in."""
        template = self.template(text, node, key)
        return None if template is None else self.cleaned(template, node, key)

    def cleaned(self, template: Template, node: Node, key: str) -> Template | None:
        try:
            if template.constant is not None:
                return Template((clean_path(template.constant),))
            clean_path(template.shape)
        except ValueError as error:
            self.form.findings.note(node.place, key, str(error))
            return None
        return template

    def destination(self, node: Node, key: str) -> DestinationSpec | None:
        """`origin:path`, `origin:dir/`, or {to:, on_exists:}."""
        on_exists, place = None, node.place
        if node.kind == "mapping":
            fields = self.form.fields(node, key, FINAL_KEYS)
            on_exists = fields.choice("on_exists", OnExists, OnExists.FAIL) if fields.get("on_exists") else None
            if fields.get("to") is None:
                self.form.findings.note(node.place, key, "the destination is missing; write to: origin:path")
                return None
            node, key = fields.nodes["to"], fields.at("to")
        text = self.form.text(node, key)
        parts = self.split(text, node, key) if text else None
        if parts is None:
            return None
        origin, path = parts
        if not origin or path.startswith(("/", "~")):
            self.form.findings.note(node.place, key, self.no_destination(text, path))
            return None
        if self.origins[origin].kind is OriginKind.HTTP:
            self.form.findings.note(
                node.place, key, f"origin {origin!r} is http, which can only be read; choose a file, sftp, sshfs or s3 origin"
            )
            return None
        bare = path.rstrip("/")
        template = Template(("",)) if bare in ("", ".") else self.path(bare, node, key)
        return None if template is None else DestinationSpec(origin, template, path.endswith("/") or not bare, on_exists, place, key)

    def no_destination(self, text: str, path: str) -> str:
        """Of a text without an origin, or with a path that no origin is asked for."""
        if path.startswith("~"):
            return f"{text!r}: '~' is not read here; name the directory under 'origins:' with its full path, as in out: file:/home/me/out"
        if not path.startswith("/"):
            return f"{text!r} names no origin; a destination is written origin:path{self.some_origin(text)}"
        top, _, name = path.rpartition("/")
        where = f'write origins: {{out: "file:{top or "/"}"}} at the top, and out:{name or "NAME"} here'
        return f"{text!r} is an absolute path, and a destination is a path below an origin; {where}"

    def some_origin(self, text: str) -> str:
        return f", for instance {next(iter(self.origins))}:{text}" if self.origins else ""


def no_input(text: str) -> str:
    """Of a full path where a file is named."""
    top, _, name = text.rpartition("/")
    where = f'write origins: {{data: "file:{top or "/"}"}} at the top' if text[0] == "/" else "name its directory under 'origins:' in full"
    return f"{text!r} is a full path, and files are named, or written origin:path; {where}, and data:{name or 'NAME'} here"


def rendered_path(template: Template, row: Mapping[str, str], clean: Callable[[str], str] | None = None) -> str:
    """The path with the values in it, clean. Raises ValueError that names the path."""
    constant = template.constant
    if constant is not None:
        return constant
    return clean_path(template.render(row, clean))
