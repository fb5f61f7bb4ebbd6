"""`{tile}` in shell texts: replaced by a reference to the environment variable that carries the value, quoted for the spot.

May know: templates, and as much of sh's grammar as tells a quoted spot from an unquoted one. One rule: the value itself never enters the
text, so whatever this reading of sh gets wrong can split a value at its spaces, and can never run it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from stager.readers.native_template import FORMAT, HOLE, PARTS, Hole, hole_of, left_alone, unescaped

HEREDOC = re.compile(r"<<-?[ \t]*(\\?)(['\"]?)([A-Za-z0-9_.-]+)\2")
WORD = re.compile(r"\w+")
FORMAT_WORD = re.compile(FORMAT.replace("\\.", "p"))
# Beside the beginning and the end of the text.
WORD_BEGINS, WORD_ENDS = " \t\n(", " \t\n;|&)<>"
NONE_APART: Mapping[str, int] = MappingProxyType({})
KEY_SIGNS, NOT_FIRST = "abcdefghijklmnopqrstuvwxyz0123456789_", "0123456789_"
BACK = {"(": ")", "{": "}", "`": "`", '"': '"'}


def compile_shell(text: str, keys: Collection[str], apart: Mapping[str, int] = NONE_APART) -> tuple[str, tuple[Hole, ...]]:
    """The text to run and the holes whose variables it needs. `apart`: lists by the number of their members, each of which is a word
    where the list is one. Raises ValueError where a value cannot stand.
    """
    named = holes_named(text, keys)
    if not keys or "{" not in text:
        return text, tuple(dict.fromkeys(named))
    lexer = ShellLexer(text, keys, apart)
    lexer.run()
    return "".join(lexer.out), tuple(dict.fromkeys(lexer.holes + named))


def holes_named(text: str, keys: Collection[str]) -> list[Hole]:
    """Those whose variables the text takes from the environment."""
    return [hole for word in WORD.findall(text) if (hole := hole_named(word)) is not None and hole.key in keys]


def hole_named(word: str) -> Hole | None:
    """The hole whose variable the word ends with: `tile__stem`. One pass, however long the word is."""
    before, found, part = word.rpartition("__")
    written = part.replace("p", ".") if found and FORMAT_WORD.fullmatch(part) else ""
    if not found or not part or (part not in PARTS and not written):
        return None
    key = before[len(before.rstrip(KEY_SIGNS)) :].lstrip(NOT_FIRST)
    return Hole(key, "", written) if written else Hole(key, part)


class ShellLexer:
    """`open` holds the closing signs of what we are in, innermost last: `)` `}` `` ` `` for code, `"` for double quotes, `))` for
    arithmetic. `quoted` holds, for each of them, whether it lies in double quotes: no walk through all that is open at each sign."""

    def __init__(self, text: str, keys: Collection[str], apart: Mapping[str, int]) -> None:
        self.text, self.keys, self.apart = text, keys, apart
        self.out: list[str] = []
        self.holes: list[Hole] = []
        self.open: list[str] = []
        self.quoted: list[bool] = []
        self.arithmetic = 0
        self.heredocs: list[tuple[str, bool]] = []
        self.position = 0

    def run(self) -> None:
        while self.position < len(self.text):
            sign = self.text[self.position]
            if sign == "\\":
                self.copy(2)
            elif sign == "{":
                self.brace()
            elif sign == "$":
                self.dollar()
            elif self.open and self.text.startswith(self.open[-1], self.position):
                self.copy(len(self.leave()))
            elif sign in '"`':
                self.enter(sign)
                self.copy(1)
            elif self.in_quotes():
                self.copy(1)
            else:
                self.code(sign)

    def in_quotes(self) -> bool:
        """Inside double quotes, where ' # ( < are plain text; a ${...} inside keeps the quoting of what it stands in."""
        return bool(self.quoted) and self.quoted[-1]

    def enter(self, closing: str) -> None:
        self.quoted.append(self.in_quotes() if closing == "}" else closing == '"')
        self.arithmetic += closing == "))"
        self.open.append(closing)

    def leave(self) -> str:
        self.quoted.pop()
        closing = self.open.pop()
        self.arithmetic -= closing == "))"
        return closing

    def code(self, sign: str) -> None:
        if self.arithmetic:
            if sign == "(":
                self.enter(")")
            self.copy(1)
        elif sign == "'":
            self.single_quotes()
        elif sign == "#" and (self.position == 0 or self.text[self.position - 1] in " \t\n;&|()"):
            end = self.text.find("\n", self.position)
            self.copy((end if end >= 0 else len(self.text)) - self.position)
        elif sign == "(":
            self.enter(")")
            self.copy(1)
        elif sign == "<" and not self.text.startswith("<<<", self.position) and (match := HEREDOC.match(self.text, self.position)):
            self.heredocs.append((match[3], not (match[1] or match[2])))
            self.copy(len(match[0]))
        elif sign == "<" and self.text.startswith("<<<", self.position):
            self.copy(3)
        elif sign == "\n" and self.heredocs:
            self.copy(1)
            self.bodies()
        else:
            self.copy(1)

    def dollar(self) -> None:
        if self.text.startswith("$((", self.position):
            self.enter("))")
            self.copy(3)
        elif self.text[self.position + 1 : self.position + 2] in ("(", "{"):
            self.enter(BACK[self.text[self.position + 1]])
            self.copy(2)
        else:
            self.copy(1)

    def brace(self) -> None:
        if self.arithmetic:
            self.substitute(None)
        elif self.in_quotes():
            self.substitute("${%s}")
        elif not self.members():
            self.substitute('"${%s}"')

    def members(self) -> bool:
        """At a list that is a word of its own: its members, each a word. Behind a `=` they stay one, so that none is ever a command."""
        match = HOLE.match(self.text, self.position)
        if match is None or match["key"] not in self.apart or match["part"] or match["format"]:
            return False
        if not self.begins_word(self.position) or self.text[match.end() : match.end() + 1] not in WORD_ENDS:
            return False
        key, count = match["key"], self.apart[match["key"]]
        holes = [Hole(key, str(number)) for number in range(1, count + 1)]
        self.out.append(" ".join([f'"${{{hole.variable}}}"' for hole in holes]))
        self.holes += holes or [Hole(key)]
        self.position = match.end()
        return True

    def begins_word(self, position: int) -> bool:
        while self.text.endswith("\\\n", 0, position):
            position -= 2
        return position == 0 or (self.text[position - 1] in WORD_BEGINS and not self.text.endswith("\\", 0, position - 1))

    def single_quotes(self) -> None:
        """Up to the closing quote; a hole inside leaves the single quotes, and comes back."""
        self.copy(1)
        while self.position < len(self.text):
            sign = self.text[self.position]
            if sign == "{":
                self.substitute("'\"${%s}\"'")
                continue
            self.copy(1)
            if sign == "'":
                return

    def bodies(self) -> None:
        """The here-documents that wait for their text, in order."""
        for word, expands in self.heredocs:
            while self.position < len(self.text):
                end = self.text.find("\n", self.position)
                end = len(self.text) if end < 0 else end + 1
                line = self.text[self.position : end]
                while self.position < end:
                    if expands and self.text[self.position] == "\\":
                        self.copy(2)
                    elif self.text.startswith("${", self.position):
                        self.copy(2)
                    elif self.text[self.position] == "{":
                        self.substitute("${%s}" if expands else None)
                    else:
                        self.copy(1)
                if line.strip() == word:
                    break
        self.heredocs = []

    def substitute(self, form: str | None) -> None:
        """At a `{`: a hole in the given form, or the text as it is."""
        match = HOLE.match(self.text, self.position)
        if not match:
            self.copy(1)
            return
        if match["escaped"]:
            self.out.append(unescaped(match["escaped"], self.keys, False))
        elif hole := hole_of(match, self.keys):
            if form is None:
                where = f"{match[0]} stands where a shell would evaluate it as arithmetic or not at all"
                raise ValueError(f"{where}; use the variable {hole.variable} itself, which the job has in its environment")
            self.holes.append(hole)
            self.out.append(form % hole.variable)
        else:
            self.out.append(left_alone(match, self.keys, False))
        self.position = match.end()

    def copy(self, count: int) -> None:
        self.out.append(self.text[self.position : self.position + count])
        self.position += count
