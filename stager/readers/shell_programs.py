"""The programs that a shell text calls for certain, without running it: what `check` may look for on PATH.

May know: as much of sh's grammar as tells a simple command. One rule: what is not certain is left alone and counted; a program is named
only
if a run of the text that goes well calls it by just this word.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

BUILTINS = frozenset(
    ": [ bg break cd command continue declare echo export false fc fg getopts hash jobs kill let local printf pushd popd pwd read readonly"
    " set shift shopt test times trap true type typeset ulimit umask unalias unset wait"
    " builtin caller compgen complete compopt dirs disown logout mapfile readarray suspend".split()
)
# Whether what comes behind their `&&` is called at all is what they tell.
QUESTIONS = frozenset("[ command false hash test type which".split())
# What comes behind them is known only when they run, or may never run.
TRACK_ENDS = frozenset(
    ". source eval exec alias exit return enable module ml conda mamba micromamba spack { } ! [["
    " if for while until case select function time".split()
)
PLAIN = r"\\.|\$\{\w+\}|\$(?![{(])"
TOKEN = re.compile(
    rf"""(?P<blank>(?:[ \t\r]|\\\n|\#[^\n]*)+)
    |(?P<word>(?!\d+[<>])(?:[^\s;&|<>()'"\\`$]|'[^']*'|"(?:[^"\\`$]|{PLAIN})*"|{PLAIN})+)
    |(?P<heredoc>\d*<<(?!<))
    |(?P<redirect>\d*(?:<<<|&>>?|>>|[<>]&|<>|>\||<|>))
    |(?P<join>&&|\|\||\|&?)
    |(?P<end>;(?!;)|&|\n)""",
    re.VERBOSE | re.DOTALL,
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
NOT_LITERAL = re.compile(r"[$*?\[\]{}~!]")


def programs_of(text: str) -> tuple[tuple[str, ...], int]:
    """(programs in the order of their calls, how many commands or remainders of the text were left alone)."""
    walk = Walk()
    position = 0
    while position < len(text) and not walk.lost:
        match = TOKEN.match(text, position)
        if match is None:
            walk.words = []
            walk.lost = True
            break
        walk.take(match.lastgroup or "", match[0])
        position = match.end()
    walk.end_list()
    return tuple(dict.fromkeys(walk.found)), walk.left_alone + walk.lost


@dataclass(slots=True)
class Walk:
    """`words` of the command that is being read; `chain` holds the programs of its and-or list, "" for one that is not certain."""

    found: list[str] = field(default_factory=list)
    left_alone: int = 0
    lost: bool = False
    words: list[str] = field(default_factory=list)
    chain: list[str] = field(default_factory=list)
    depends: bool = False
    behind_redirect: bool = False
    behind_join: bool = False

    def take(self, kind: str, text: str) -> None:
        if kind == "word":
            self.words += [] if self.behind_redirect else [text]
            self.behind_redirect = self.behind_join = False
        elif kind == "redirect":
            self.behind_redirect = True
        elif kind == "heredoc":
            self.lost = True
        elif kind == "join":
            self.depends = self.depends or text == "||"
            self.end_command()
            self.behind_join = True
        elif kind == "end" and not (text == "\n" and self.behind_join):
            self.end_list()

    def end_command(self) -> None:
        words = [word for index, word in enumerate(self.words) if not all(ASSIGNMENT.match(each) for each in self.words[: index + 1])]
        if any(word.startswith(("PATH=", "PATH+=")) for word in self.words) or (words and words[0] in TRACK_ENDS):
            self.lost = True
        elif words and words[0] not in BUILTINS:
            certain = not NOT_LITERAL.search(words[0]) and ("/" not in words[0] or words[0].startswith("/"))
            self.chain.append(shlex.split(words[0])[0] if certain else "")
        self.depends = self.depends or bool(words and words[0] in QUESTIONS)
        self.words = []

    def end_list(self) -> None:
        self.end_command()
        self.left_alone += len(self.chain) if self.depends else self.chain.count("")
        self.found += [] if self.depends else [program for program in self.chain if program]
        self.chain, self.depends, self.behind_join = [], False, False
