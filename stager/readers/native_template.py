"""`{tile}` and `{tile.stem}` in the texts of a foreach job.

May know: text only. One rule: a value never becomes program text. In names and argument lists it is put in as it is; in shell texts a
reference to an
environment variable is put in, quoted for where it stands, so that a shell never parses the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from stager.readers.lines import closest, nearest

KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
WORD = r"[A-Za-z_][A-Za-z0-9_]*"
HOLE = re.compile(rf"(?P<escaped>\{{\{{{WORD}(?:\.{WORD})?\}}\}})|(?P<shell>\$\{{)|\{{(?P<key>{WORD})(?:\.(?P<part>{WORD}))?\}}")


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
    """The place of a value. `variable` is the environment variable that carries it to shells; `__` cannot come in a key, so no two meet."""

    key: str
    part: str = ""

    @property
    def variable(self) -> str:
        return f"{self.key}__{self.part}" if self.part else self.key

    def value(self, row: Mapping[str, str]) -> str:
        return PARTS[self.part](row[self.key])


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
    def source(self) -> str:
        return "".join(
            piece if isinstance(piece, str) else f"{{{piece.key}{'.' + piece.part if piece.part else ''}}}" for piece in self.pieces
        )

    def render(self, row: Mapping[str, str], clean: Callable[[str], str] | None = None) -> str:
        """`clean` is applied to the values, not to the literal text (a glob escapes what it is given)."""
        if clean is None:
            return "".join([piece if isinstance(piece, str) else PARTS[piece.part](row[piece.key]) for piece in self.pieces])
        return "".join([piece if isinstance(piece, str) else clean(piece.value(row)) for piece in self.pieces])


def hole_of(match: re.Match[str], keys: Collection[str]) -> Hole | None:
    """The hole a match stands for, None where the text stays as it is. Raises ValueError where it looks like a slip."""
    key, part = match["key"], match["part"] or ""
    if key in keys:
        if part not in PARTS:
            raise ValueError(f"{{{key}.{part}}} is unknown; a value has .name, .stem, .suffix and .dir" + nearest(part, PARTS))
        return Hole(key, part)
    return None


def template_of(text: str, keys: Collection[str], *, strict: bool) -> Template:
    """Strict: an unknown `{word}` is a slip (names of files). Not strict: only a near miss is (programs have braces of their own)."""
    if "{" not in text:
        return Template((text,))
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
    word = text[2:-2].partition(".")[0]
    return text[1:-1] if strict or word in keys or closest(word, keys) is not None else text


def left_alone(match: re.Match[str], keys: Collection[str], strict: bool) -> str:
    near = closest(match["key"], keys)
    if strict or near is not None:
        slip = f"; did you mean {near!r}?" if near is not None else ""
        known = ", ".join(keys) if keys else "none, since the job has no foreach"
        raise ValueError(f"{match[0]} is no foreach key (known: {known}){slip}; write {{{match[0]}}} for the text itself")
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
