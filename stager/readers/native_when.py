"""`when:` of a job: a comparison of parameters that says whether the job is part of the workflow.

May know: parameters. One rule: it is read and weighed here, and nothing in it is ever run.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stager.model.units import parse_duration_s, parse_size_bytes
from stager.readers.lines import nearest
from stager.readers.native_form import boolean_of
from stager.readers.native_lists import Values
from stager.readers.native_params import value_of
from stager.readers.native_spec import ParamSpec

LENGTH_MAX, DEPTH_MAX = 1000, 20
TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[A-Za-z]*)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)|(?P<other>\S))"
)
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WORDS = frozenset(("and", "or", "not", "in", "true", "false"))
MEASURE: dict[str, Callable[[str], object]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": boolean_of,
    "size": parse_size_bytes,
    "duration": parse_duration_s,
}
EXAMPLE = "as in mode == 'full' and chunks > 4"
SLIPS = {
    "=": "'==' compares",
    "&": "'and' joins two comparisons",
    "|": "'or' joins two comparisons",
    "!": "'not' turns a comparison round",
    "{": "a parameter stands here without braces",
    "$": "a parameter stands here by its name alone",
}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: text, number, word, sign, or end."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Operand:
    """A parameter by its name, or a value as it is written."""

    text: str
    spec: ParamSpec | None = None


def holds(text: str, specs: Mapping[str, ParamSpec], values: Values, used: set[str]) -> bool:
    """The outcome with these values. Raises ValueError that says what cannot be read. `used`: takes the parameters that are named."""
    if len(text) > LENGTH_MAX:
        raise ValueError(f"the condition has more than {LENGTH_MAX} characters")
    reading = Reading(tokens_of(text), specs, values, used)
    found = reading.either()
    if reading.next.kind != "end":
        raise ValueError(f"{reading.next.text!r} stands behind the end of the condition; join comparisons with and, or")
    return found


def tokens_of(text: str) -> list[Token]:
    found = []
    for match in TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if kind == "other":
            advice = SLIPS.get(match[kind], f"write a comparison, {EXAMPLE}")
            raise ValueError(f"{match[kind]!r} cannot stand in a condition; {advice}")
        found.append(Token(kind, match[kind]))
    return [*found, Token("end", "")]


class Reading:
    """From the first token to the last, weighing as it goes. Both sides of `and` and `or` are read, so that each slip is told."""

    def __init__(self, tokens: list[Token], specs: Mapping[str, ParamSpec], values: Values, used: set[str]) -> None:
        self.tokens, self.specs, self.values, self.used = tokens, specs, values, used
        self.at = self.depth = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def takes(self, text: str) -> bool:
        """Steps over it where it comes next."""
        is_next = self.next.kind in ("word", "sign") and self.next.text == text
        self.at += is_next
        return is_next

    def either(self) -> bool:
        found = self.both()
        while self.takes("or"):
            found = self.both() or found
        return found

    def both(self) -> bool:
        found = self.negated()
        while self.takes("and"):
            found = self.negated() and found
        return found

    def negated(self) -> bool:
        turned = False
        while self.takes("not"):
            turned = not turned
        return self.one() != turned

    def one(self) -> bool:
        """A comparison, a truth value, or a condition in parentheses."""
        if self.takes("("):
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise ValueError(f"parentheses are nested deeper than {DEPTH_MAX}")
            found = self.either()
            self.depth -= 1
            if not self.takes(")"):
                raise ValueError("a '(' is not closed; write the ')'")
            return found
        left = self.operand()
        sign = self.next.text if self.next.kind == "sign" else ""
        if sign in COMPARE:
            self.at += 1
            return self.compared(left, sign, self.operand())
        turned = self.takes("not")
        if self.takes("in"):
            return self.among(left) != turned
        if turned:
            raise ValueError("'not' stands before a comparison, or before in")
        return self.truth(left)

    def operand(self) -> Operand:
        token = self.next
        self.at += 1
        if token.kind == "text":
            return Operand(token.text[1:-1])
        if token.kind == "number" or token.text in ("true", "false"):
            return Operand(token.text)
        if token.kind == "word" and token.text not in WORDS:
            spec = self.specs.get(token.text)
            if spec is None:
                known = ", ".join(self.specs) or "none"
                near = nearest(token.text, self.specs)
                raise ValueError(f"{token.text!r} is no parameter (known: {known}){near}; a text stands in quotes: '{token.text}'")
            self.used.add(token.text)
            return Operand(token.text, spec)
        where = "ends" if token.kind == "end" else f"has {token.text!r}"
        raise ValueError(f"the condition {where} where a parameter or a value should stand; write it {EXAMPLE}")

    def among(self, left: Operand) -> bool:
        if self.next.kind == "word" and self.next.text not in WORDS:
            return self.member(left, self.operand())
        if not self.takes("["):
            raise ValueError("behind 'in' stands a list, as in mode in ['fast', 'full']")
        members = [self.operand()]
        while self.takes(","):
            members.append(self.operand())
        if not self.takes("]"):
            raise ValueError("a '[' is not closed; write the ']'")
        # All are looked at, so that each slip is told.
        equal = [self.compared(left, "==", member) for member in members]
        return any(equal)

    def member(self, left: Operand, right: Operand) -> bool:
        """Of a parameter that is a list."""
        spec = right.spec
        if spec is None or not spec.is_list:
            raise ValueError(f"{right.text!r} is no list; behind 'in' stands one, as in mode in ['fast', 'full']")
        if left.spec is not None and (left.spec.is_list or left.spec.type != spec.type):
            raise ValueError(f"{left.text!r} is a {left.spec.kind}, and the members of {right.text!r} are each a {spec.type}")
        measure, one = MEASURE[spec.type], replace(spec, is_list=False)
        wanted = measure(self.value(left, one))
        return any(measure(member) == wanted for member in self.values.lists[right.text])

    def truth(self, operand: Operand) -> bool:
        if operand.spec is None:
            if operand.text in ("true", "false"):
                return operand.text == "true"
            raise ValueError(f"{operand.text!r} alone is neither true nor false; compare it with a parameter, {EXAMPLE}")
        self.refuse_list(operand)
        if operand.spec.type != "boolean":
            raise ValueError(f"{operand.text!r} is a {operand.spec.type}, so compare it, as in {operand.text} == 'VALUE'")
        return bool(boolean_of(self.values[operand.text]))

    def compared(self, left: Operand, sign: str, right: Operand) -> bool:
        spec = left.spec or right.spec
        if spec is None:
            raise ValueError(f"{left.text!r} and {right.text!r} are both values; compare one with a parameter")
        self.refuse_list(left)
        self.refuse_list(right)
        if left.spec is not None and right.spec is not None and left.spec.type != right.spec.type:
            raise ValueError(f"{left.text!r} is a {left.spec.type} and {right.text!r} is a {right.spec.type}; they cannot be compared")
        if spec.type in ("string", "boolean") and sign not in ("==", "!="):
            raise ValueError(f"{sign!r} compares numbers, and {spec.name!r} is a {spec.type}; use ==, != or in")
        measure = MEASURE[spec.type]
        return COMPARE[sign](measure(self.value(left, spec)), measure(self.value(right, spec)))

    def refuse_list(self, operand: Operand) -> None:
        if operand.spec is not None and operand.spec.is_list:
            raise ValueError(f"{operand.text!r} is a list; ask for one of its members, as in 'VALUE' in {operand.text}")

    def value(self, operand: Operand, spec: ParamSpec) -> str:
        """In the spelling of the parameter that it is compared with."""
        if operand.spec is not None:
            return self.values[operand.text]
        try:
            return value_of(spec, operand.text)
        except ValueError as error:
            raise ValueError(f"{error}, as {spec.name!r} is") from None
