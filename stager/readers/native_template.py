"""`{tile}` and `{tile.stem}` in the texts of a workflow: values of parameters, and of the foreach of a job.

May know: text only. One rule: a value never becomes program text. In names and argument lists it is put in as it is; in shell texts a
reference to an
environment variable is put in, quoted for where it stands, so that a shell never parses the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from stager.model.units import parse_number
from stager.readers.lines import closest, nearest
from stager.readers.native_lists import Values

KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
# Variables that programs look at, and a word of foreach.
TAKEN = frozenset(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "zip"))
WORD = r"[A-Za-z_][A-Za-z0-9_]*"
# How a number is written: `02d` fills up with zeros, `.3f` has three places.
FORMAT = r"0?[0-9]{0,2}(?:d|(?:\.[0-9]{1,2})?[efg])"
NAMED = rf"{WORD}(?:\.{WORD})?(?::{FORMAT})?"
HOLE = re.compile(
    rf"(?P<escaped>\{{\{{{NAMED}\}}\}})|(?P<shell>\$\{{)|\{{(?P<key>{WORD})(?:\.(?P<part>{WORD}))?(?::(?P<format>{FORMAT}))?\}}"
)
ODD_FORMAT = re.compile(rf"\{{({WORD})(?:\.{WORD})?:[^{{}}/]{{0,12}}\}}")
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def name_of(value: str) -> str:
    return value.rpartition("/")[2]


def stem_of(value: str) -> str:
    name = name_of(value)
    return name[: name.rfind(".")] if name.rfind(".") > 0 else name


def suffix_of(value: str) -> str:
    return name_of(value)[len(stem_of(value)) :]


def directory_of(value: str) -> str:
    return value.rpartition("/")[0]


PARTS: dict[str, Callable[[str], str]] = {"": str, "name": name_of, "stem": stem_of, "suffix": suffix_of, "dir": directory_of}


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of a value. `variable` is the environment variable that carries it to shells; `__` cannot come in a key, so no two meet.
    `format`: how a number is written there. A `part` that is a number is one member of a list, the first of which is 1: no text can say it.
    """

    key: str
    part: str = ""
    format: str = ""

    @property
    def variable(self) -> str:
        part = f"{self.key}__{self.part}" if self.part else self.key
        return f"{part}__{self.format.replace('.', 'p')}" if self.format else part

    @property
    def source(self) -> str:
        return f"{{{self.key}{'.' + self.part if self.part else ''}{':' + self.format if self.format else ''}}}"

    def value(self, row: Mapping[str, str]) -> str:
        """Raises ValueError where it is to be written as a number and is none, or where a part of a list is asked for."""
        if isinstance(row, Values) and self.key in row.lists and self.part:
            if not self.part.isdigit():
                raise ValueError(f"{self.source} is a part of one text, and {self.key} is a list; use it under foreach, inputs or outputs")
            return row.lists[self.key][int(self.part) - 1]
        text = PARTS[self.part](row[self.key])
        return self.formatted(text) if self.format else text

    def formatted(self, text: str) -> str:
        try:
            if self.format.endswith("d"):
                if not WHOLE.fullmatch(text):
                    raise ValueError
                return format(int(text), self.format)
            return format(parse_number(text), self.format)
        except ValueError:
            kind = "whole number" if self.format.endswith("d") else "number"
            raise ValueError(f"{self.source} writes a {kind}, and {self.key} is {text[:60]!r} here") from None


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts and holes in turn, no two literals side by side: one literal alone is a constant."""

    pieces: tuple[str | Hole, ...]

    @property
    def constant(self) -> str | None:
        """The text that it is whatever the values are; None: it has holes."""
        first = self.pieces[0]
        return first if len(self.pieces) == 1 and isinstance(first, str) else None

    @property
    def keys(self) -> set[str]:
        """Of its holes."""
        return {piece.key for piece in self.pieces if isinstance(piece, Hole)}

    @property
    def source(self) -> str:
        return "".join(piece if isinstance(piece, str) else piece.source for piece in self.pieces)

    @property
    def shape(self) -> str:
        """With an x for each value, to look at what is literal."""
        return "".join(piece if isinstance(piece, str) else "x" for piece in self.pieces)

    @property
    def holes(self) -> list[Hole]:
        return [piece for piece in self.pieces if isinstance(piece, Hole)]

    def bound(self, values: Mapping[str, str], clean: Callable[[str], str] | None = None) -> Template:
        """With these values in it, the other holes left; `clean` as in `render`."""
        if not any(isinstance(piece, Hole) and piece.key in values for piece in self.pieces):
            return self
        filled: list[str | Hole] = []
        for piece in self.pieces:
            if isinstance(piece, Hole) and piece.key in values:
                value = piece.value(values)
                filled.append(value if clean is None else clean(value))
            else:
                filled.append(piece)
        return Template(merged(filled))

    def render(self, row: Mapping[str, str], clean: Callable[[str], str] | None = None) -> str:
        """`clean` is applied to the values, not to the literal text (a glob escapes what it is given)."""
        if clean is None:
            return "".join([piece if isinstance(piece, str) else piece.value(row) for piece in self.pieces])
        return "".join([piece if isinstance(piece, str) else clean(piece.value(row)) for piece in self.pieces])


def hole_of(match: re.Match[str], keys: Collection[str]) -> Hole | None:
    """The hole a match stands for, None where the text stays as it is. Raises ValueError where it looks like a slip."""
    key, part = match["key"], match["part"] or ""
    if key in keys:
        if part not in PARTS:
            raise ValueError(f"{{{key}.{part}}} is unknown; a value has .name, .stem, .suffix and .dir" + nearest(part, PARTS))
        return Hole(key, part, match["format"] or "")
    return None


def template_of(text: str, keys: Collection[str], *, strict: bool) -> Template:
    """Strict: an unknown `{word}` is a slip (names of files). Not strict: only a near miss is (programs have braces of their own)."""
    if "{" not in text:
        return Template((text,))
    if strict and (odd := next((each for each in ODD_FORMAT.finditer(text) if each[1] in keys and not HOLE.fullmatch(each[0])), None)):
        raise ValueError(f"{odd[0]} is no way to write a number; use {{{odd[1]}:02d}} (zeros in front) or {{{odd[1]}:.2f}} (places)")
    pieces: list[str | Hole] = []
    position = 0
    for match in HOLE.finditer(text):
        literal = text[position : match.start()]
        if match["escaped"]:
            hole: str | Hole = unescaped(match["escaped"], keys, strict)
        elif match["shell"]:
            hole = match["shell"]
        else:
            hole = hole_of(match, keys) or left_alone(match, keys, strict)
        pieces += [literal, hole]
        position = match.end()
    pieces.append(text[position:])
    return Template(merged(pieces))


def unescaped(text: str, keys: Collection[str], strict: bool) -> str:
    """`{{tile}}` is the text `{tile}`; in programs only where tile is a key or nearly one, since they use double braces too."""
    word = re.split("[.:]", text[2:-2])[0]
    return text[1:-1] if strict or word in keys or closest(word, keys) is not None else text


def left_alone(match: re.Match[str], keys: Collection[str], strict: bool) -> str:
    near = closest(match["key"], keys)
    if strict or near is not None:
        slip = f"; did you mean {near!r}?" if near is not None else ""
        known = ", ".join(keys) if keys else "none, since the job has no foreach"
        raise ValueError(f"{match[0]} is no foreach key or parameter (known: {known}){slip}; write {{{match[0]}}} for the text itself")
    return match[0]


def merged(pieces: list[str | Hole]) -> tuple[str | Hole, ...]:
    """Neighbouring literals as one, empty ones left out."""
    out: list[str | Hole] = []
    for piece in pieces:
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        elif piece != "":
            out.append(piece)
    return tuple(out) or ("",)
