"""Values of parameters that are lists: how one is written in a single text, and what stands for its members.

May know: text only. One rule: a list that is written and read again has the same members.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

LIST, LIST_OF = "list", "list of "
ADVICE = 'write a,b,c, or a list of JSON where a member holds a comma, as in ["a", "b, c"]'


class Values(dict[str, str]):
    """Of parameters, as they are put into texts. `lists`: the members of those that are lists. `apart`: those of them that a program is
    given as so many arguments, since nothing was said that joins them.
    """

    def __init__(self, values: Mapping[str, str] | None = None, lists: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(values or {})
        self.lists = {name: tuple(members) for name, members in (lists or {}).items()}
        self.apart: set[str] = set()

    def named_alone(self, text: str) -> str:
        """The list of which the text says nothing but `{name}`; else nothing."""
        name = text[1:-1] if text.startswith("{") and text.endswith("}") else ""
        return name if name in self.lists else ""

    def each(self, name: str) -> Iterator[Values]:
        """The values with one member of a list in its place, for each of them."""
        for member in self.lists[name]:
            found = Values(self, self.lists)
            found.apart = self.apart - {name}
            del found.lists[name]
            found[name] = member
            yield found


def members_of(text: str) -> tuple[str, ...]:
    """Raises ValueError."""
    text = text.strip()
    if not text:
        return ()
    if not text.startswith("["):
        members = tuple(member.strip() for member in text.split(","))
        if "" in members:
            raise ValueError(f"a member of the list is empty; {ADVICE}")
        return members
    try:
        # A number stays as it is written: another spelling may be another number to a program.
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise ValueError(f"what begins with [ is read as JSON, and this is none; {ADVICE}") from None
    if any(isinstance(member, (list, dict)) or member is None for member in found):
        raise ValueError(f"a member of the list is no text, number or truth value; {ADVICE}")
    return tuple(member if isinstance(member, str) else json.dumps(member) for member in found)


def no_constant(word: str) -> str:
    """NaN and Infinity are no words of JSON."""
    raise ValueError(word)


def list_text(members: Iterable[str]) -> str:
    """As `members_of` reads it."""
    members = list(members)
    plain = ",".join(members)
    is_plain = all(member and member == member.strip() and "," not in member for member in members) and not plain.startswith("[")
    return plain if is_plain else json.dumps(members, ensure_ascii=False)
