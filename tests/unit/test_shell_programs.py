"""Which programs a shell text calls for certain: what is not certain is counted and left alone."""

from __future__ import annotations

import pytest

from stager.readers.shell_programs import programs_of

CERTAIN = [
    ("nosuchprog2 | sort", ("nosuchprog2", "sort")),
    ("cd x && nosuch a b", ("nosuch",)),
    ("A=1 B='x y' run-it > out 2>&1; second\nthird &", ("run-it", "second", "third")),
    ("LC_ALL=C sort a \\\n  | uniq # not | this\nwc -l", ("sort", "uniq", "wc")),
    ("set -e\n/opt/tool/bin/fit x", ("/opt/tool/bin/fit",)),
    ("'quoted prog' x", ("quoted prog",)),
    ("echo a; printf b; true; mapfile lines < x", ()),
    ("find . -exec rm {} ';'  \\; ; tr '\\n' ';' && sort", ("find", "tr", "sort")),
    ("a |\n b &&\n c", ("a", "b", "c")),
    ('echo ${x} "$y; nosuch" # don\'t; nosuch', ()),
    ("2>err a <in", ("a",)),
]
NOT_CERTAIN = [
    ("$PROG x", (), 1),
    ('"${tool}" x | sort', ("sort",), 1),
    ("./made x", (), 1),
    ("command -v pigz && pigz x", (), 1),
    ("pigz x || gzip x", (), 2),
    ("if test -e x; then nosuch x; fi", (), 1),
    ("x=$(nosuch); other", (), 1),
    ("f() { nosuch; }; f", (), 1),
    ("cat <<E\nnosuch x\nE", ("cat",), 1),
    ("PATH=/opt:$PATH; nosuch", (), 1),
    ("export PATH=/opt; nosuch", (), 1),
    (". ./setup.sh; nosuch", (), 1),
    ("sort a; echo 'no end", ("sort",), 1),
    ("nosuch$(x) y", (), 1),
    ("f () { nosuch; }", (), 1),
    ('echo "$(date "+%s; nosuch")"', (), 1),
    ("if true\nthen nosuch; fi", (), 1),
    ("exit 0; nosuch", (), 1),
    ("case $x in a) nosuch;; esac", (), 1),
    ("*.sh", (), 1),
]


@pytest.mark.parametrize(("text", "programs"), CERTAIN)
def test_first_words_of_simple_commands_are_programs(text: str, programs: tuple[str, ...]) -> None:
    assert programs_of(text) == (programs, 0)


@pytest.mark.parametrize(("text", "programs", "left_alone"), NOT_CERTAIN)
def test_what_is_not_certain_is_left_alone_and_counted(text: str, programs: tuple[str, ...], left_alone: int) -> None:
    assert programs_of(text) == (programs, left_alone)
