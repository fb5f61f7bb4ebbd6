"""`params:` of a native workflow, and the values that somebody gave for them.

May know: forms, units. One rule: every value has been checked before any other part of the file is read with it, and no secret is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stager.model.errors import InvalidInput
from stager.model.units import parse_duration_s, parse_number, parse_size_bytes
from stager.model.workflow import Parameter
from stager.readers.lines import Findings, Node, Place, compose, nearest, read_text
from stager.readers.native_form import Fields, Form, boolean_of
from stager.readers.native_lists import LIST, LIST_OF, Values, list_text, members_of
from stager.readers.native_origins import check_query
from stager.readers.native_spec import PARAM_KEYS, ParamSpec
from stager.readers.native_template import KEY, TAKEN, WHOLE

PARAMS_MAX = 200
# Of all values together: each status of a run tells them, and an environment carries not much more in one variable.
VALUES_BYTES_MAX = 100_000
SHOWN_CHARS, LISTED_MAX = 60, 30
SECRET_NAME = re.compile(r"(?:.*_)?(?:password|passwd|secret|token|access_key|api_key|private_key|credentials?)", re.IGNORECASE)
# No part can match in two ways, so that a long text is looked through once: whoever submits chooses it.
URL_WITH_PASSWORD = re.compile(r"[A-Za-z0-9+.-]://[^/@:\s]*:[^/@\s]*@")
SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
Sent = str | int | float | bool
ON_THE_COMMAND_LINE, AT_THE_SUBMIT, IN_THE_REQUEST = "--param", "as submitted", "params"
EMPTY_FILE = "the file is empty; it holds values of parameters, as in seed: 7"


def text_value(text: str) -> str:
    if "\0" in text:
        raise ValueError("the value holds a NUL character; no program can be given it")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("the value is not UTF-8") from None
    if size_bytes > VALUES_BYTES_MAX:
        raise ValueError(f"the value has {size_bytes:,} bytes, and a parameter has at most {VALUES_BYTES_MAX:,}; put it in a file")
    return text


def integer_value(text: str) -> str:
    if not WHOLE.fullmatch(text):
        raise ValueError(f"{text[:SHOWN_CHARS]!r} is not a whole number")
    return str(int(text))


def number_value(text: str) -> str:
    """As it is written: another spelling may be another number to a program."""
    try:
        parse_number(text)
    except ValueError:
        raise ValueError(f"{text[:SHOWN_CHARS]!r} is not a number; write as in 7, 0.25 or 1e-3") from None
    return text


def short(text: str) -> str:
    """What is told of it is told whole."""
    if len(text) > SHOWN_CHARS:
        raise ValueError(f"{text[:SHOWN_CHARS]!r}… has {len(text):,} characters, and a size or a duration has {SHOWN_CHARS} at most")
    return text


def boolean_value(text: str) -> str:
    return str(boolean_of(text)).lower()


def size_value(text: str) -> str:
    return str(parse_size_bytes(short(text)))


def duration_value(text: str) -> str:
    seconds = parse_duration_s(short(text))
    return str(int(seconds)) if seconds == int(seconds) else repr(seconds)


TYPES: dict[str, Callable[[str], str]] = {
    "string": text_value,
    "integer": integer_value,
    "number": number_value,
    "boolean": boolean_value,
    "size": size_value,
    "duration": duration_value,
}


def value_of(spec: ParamSpec, text: str) -> str:
    """In the one spelling in which it is recorded, and but for lists put in. Raises ValueError."""
    if spec.is_list:
        return list_text([member_of(spec, member) for member in members_of(text_value(text))])
    return member_of(spec, text)


def member_of(spec: ParamSpec, text: str) -> str:
    """Of a list, or the value that is none."""
    refuse_secret(text)
    value = TYPES[spec.type](text_value(text))
    if spec.choices and value not in spec.choices:
        raise ValueError(f"{text[:SHOWN_CHARS]!r} is unknown; choose {' or '.join(spec.choices)}{nearest(text, spec.choices)}")
    return value


def described(spec: ParamSpec) -> str:
    kind = " or ".join(spec.choices) if spec.choices else spec.type
    kind = f"{LIST_OF}{kind}" if spec.is_list else kind
    return f"{spec.name} ({kind}, {'required' if spec.default is None else 'default ' + repr(spec.default[:SHOWN_CHARS])})"


def refuse_secret(text: str) -> None:
    """Raises ValueError that does not repeat the text: values of parameters are recorded, and shown to whoever sees the run."""
    hint = "values of parameters are recorded and shown; name credentials at the origin, or a variable in env_pass"
    if URL_WITH_PASSWORD.search(text):
        raise ValueError(f"the value is a URL with a password in it; {hint}")
    if "://" in text and "?" in text:
        try:
            check_query(text.partition("?")[2])
        except ValueError:
            raise ValueError(f"the value is a URL that holds a key, token or signature; {hint}") from None


def read_params(form: Form, node: Node | None) -> dict[str, ParamSpec]:
    """`name: default`, which may be a list, `name:` with nothing (a text that must be given), or a mapping."""
    specs: dict[str, ParamSpec] = {}
    for name_node, value in form.pairs(node, "params"):
        name, key = name_node.text, f"params.{name_node.text}"
        if not name_fits(form, name_node, key):
            continue
        if len(specs) >= PARAMS_MAX:
            form.findings.note(name_node.place, key, f"more than {PARAMS_MAX:,} parameters; put them in a file that jobs read")
            break
        specs[name] = read_param(form, name_node, value, key)
    return specs


def name_fits(form: Form, node: Node, key: str) -> bool:
    name = node.text
    if SECRET_NAME.fullmatch(name):
        text = f"{name!r} looks like a secret, and values of parameters are recorded and shown"
        form.findings.note(node.place, key, f"{text}; write env_pass: [{name.upper()}] at the job")
    elif not KEY.fullmatch(name) or name in TAKEN:
        text = "has lower-case letters, digits and single _, a letter first"
        form.findings.note(node.place, key, f"{name!r} cannot name a parameter, whose name {text}; choose another, as in max_depth")
    else:
        return True
    return False


def read_param(form: Form, name_node: Node, node: Node, key: str) -> ParamSpec:
    name, place = name_node.text, name_node.place
    if node.kind != "mapping":
        default = None if node.is_null else default_text(form, node, key)
        return checked(form, ParamSpec(name, place, key, default=default, is_list=node.kind == "sequence"), node)
    fields = form.fields(node, key, PARAM_KEYS)
    default_node = fields.get("default")
    kind, is_list = fields.parsed("type", type_named, ("string", default_node is not None and default_node.kind == "sequence"))
    choices = tuple(text for text, _, _ in form.texts(fields.get("choices"), fields.at("choices")))
    if fields.get("choices") is not None and not choices:
        form.findings.note(fields.place("choices"), fields.at("choices"), "the list is empty; write the values that may be chosen")
    fields.text("description")
    spec = ParamSpec(name, place, key, kind, is_list=is_list, separator=separator_of(fields, is_list=is_list))
    try:
        spec = replace(spec, choices=tuple(dict.fromkeys(member_of(spec, text) for text in choices)))
    except ValueError as error:
        form.findings.note(fields.place("choices"), fields.at("choices"), str(error))
    if default_node is None:
        return spec
    if default_node.kind == "sequence" and not is_list:
        text = f"the default is a list, and the type is {kind}; write type: list of {kind}"
        form.findings.note(default_node.place, fields.at("default"), text)
        return spec
    return checked(form, replace(spec, default=default_text(form, default_node, fields.at("default"))), default_node)


def separator_of(fields: Fields, *, is_list: bool) -> str | None:
    """What stands between the members of a list where they are one text."""
    node = fields.nodes.get("separator")
    if node is None:
        return None
    text = fields.form.text(node, fields.at("separator"))
    if not is_list or "\0" in text:
        what = "a separator holds no NUL character" if is_list else "only the members of a list are joined; write type: list"
        fields.form.findings.note(node.place, fields.at("separator"), what)
    return text


def default_text(form: Form, node: Node, key: str) -> str:
    """Of a list that is written as one, as of a single text."""
    return list_text([text for text, _, _ in form.texts(node, key)]) if node.kind == "sequence" else form.text(node, key)


def checked(form: Form, spec: ParamSpec, node: Node) -> ParamSpec:
    """With its default in the spelling in which it is put in."""
    if spec.default is None:
        return spec
    try:
        return replace(spec, default=value_of(spec, spec.default))
    except ValueError as error:
        form.findings.note(node.place, spec.key, str(error))
        return replace(spec, default="")


def type_named(text: str) -> tuple[str, bool]:
    """(the type, and that it is one of the members of a list)"""
    is_list = text == LIST or text.startswith(LIST_OF)
    of = text.removeprefix(LIST_OF).strip() if text != LIST else "string"
    if of not in TYPES:
        known = (*TYPES, LIST)
        raise ValueError(f"{text!r} is no type of a parameter; choose {', '.join(known)} or {LIST_OF}TYPE{nearest(of, known)}")
    return of, is_list


def values_of(form: Form, specs: Mapping[str, ParamSpec], given: Mapping[str, Node], place: Place) -> tuple[Parameter, ...]:
    """The value of each, in the order of their declaration. What is wrong with a value is a finding at where it was given."""
    found = []
    for name, node in given.items():
        if name not in specs:
            form.findings.note(node.place, name, f"there is no parameter {name!r}{nearest(name, specs)}; {known(specs)}")
    missing = [name for name, spec in specs.items() if name not in given and spec.default is None]
    if missing:
        named = " ".join(f"--param {name}=VALUE" for name in missing[:LISTED_MAX])
        what = f"the parameter {missing[0]!r} has" if len(missing) == 1 else f"the parameters {', '.join(missing[:LISTED_MAX])} have"
        form.findings.note(place, "params", f"{what} no default and no value was given; add {named} (or params over HTTP); {known(specs)}")
    for name, spec in specs.items():
        value, own = spec.default or "", given.get(name)
        if own is not None:
            try:
                value = value_given(spec, own)
            except ValueError as error:
                form.findings.note(own.place, name, f"{error}; {known(specs)}")
        found.append(Parameter(name, value, own is not None))
    size_bytes = sum(len(each.value.encode()) for each in found)
    if size_bytes > VALUES_BYTES_MAX:
        form.findings.note(place, "params", f"the values have {size_bytes:,} bytes, of {VALUES_BYTES_MAX:,} at most; put them in a file")
    return tuple(found)


def value_given(spec: ParamSpec, node: Node) -> str:
    """Raises ValueError."""
    if node.kind != "sequence":
        return value_of(spec, node.text)
    if not spec.is_list:
        raise ValueError(f"the value of {spec.name} is one {spec.type}, and this is a list")
    return value_of(spec, list_text([member.text for member in node.items]))


def put_in(specs: Mapping[str, ParamSpec], params: Iterable[Parameter]) -> Values:
    """The values as they stand in texts: members of a list are joined."""
    lists = {each.name: members_of(each.value) for each in params if specs[each.name].is_list}
    joined = {name: (" " if specs[name].separator is None else str(specs[name].separator)).join(lists[name]) for name in lists}
    found = Values({each.name: joined.get(each.name, each.value) for each in params}, lists)
    found.apart = {name for name in lists if specs[name].separator is None}
    return found


def known(specs: Mapping[str, ParamSpec]) -> str:
    if not specs:
        return "this workflow has no parameters (params:)"
    listed = [described(spec) for spec in list(specs.values())[:LISTED_MAX]]
    more = f" and {len(specs) - LISTED_MAX} more" if len(specs) > LISTED_MAX else ""
    return f"this workflow has {', '.join(listed)}{more}"


def given_values(pairs: Iterable[tuple[str, str]], file: Path | None = None) -> dict[str, Node]:
    """Of `--params FILE` and `--param NAME=VALUE`, which counts more. Raises InvalidInput."""
    values = values_in(file) if file is not None else {}
    named: set[str] = set()
    for name, text in pairs:
        if name in named:
            raise InvalidInput(f"{ON_THE_COMMAND_LINE} {name} is given twice; keep one of them", code="bad_parameter", subject=name)
        named.add(name)
        values[name] = scalar(text, ON_THE_COMMAND_LINE)
    return values


def values_in(file: Path) -> dict[str, Node]:
    """Of a YAML or JSON file: one mapping, names to single values or lists of them, as they are written."""
    shown = str(file)
    findings = Findings(shown)
    text = read_text(file, shown)
    if text.lstrip().startswith("{"):
        # JSON writes some characters as two halves, which YAML does not know.
        text = SURROGATES.sub(as_one, text)
    form = Form(findings)
    root = compose(text, shown, findings, empty=EMPTY_FILE)
    values = {}
    for name, value in form.pairs(root, ""):
        if value.is_null:
            findings.note(value.place, name.text, 'it has no value; write one, or leave the line out ("" is an empty text)')
        elif value.kind == "mapping" or any(each.kind != "scalar" for each in value.items):
            findings.note(value.place, name.text, "the value of a parameter is one text, number or truth value, or a list of them")
        elif empty := next((each for each in value.items if each.is_null), None):
            findings.note(empty.place, name.text, 'a member of the list has no value; write one, or take it out ("" is an empty text)')
        place = Place(value.place.line, value.place.column, shown)
        values[name.text] = Node(value.kind, place, value.text, items=value.items)
    findings.raise_if_any()
    return values


def as_one(halves: re.Match[str]) -> str:
    character: str = json.loads(f'"{halves[0]}"')
    return f"\\U{ord(character):08x}"


def scalar(text: str, where: str) -> Node:
    """A value that is given as it is: nothing in it is a word of YAML."""
    return Node("scalar", Place(file=where), text)


def sent_values(values: Mapping[str, Sent | Sequence[Sent]]) -> dict[str, Node]:
    """Of a request: JSON's truth values as they are written there, and its numbers in their shortest spelling."""
    return {name: sent_value(value) for name, value in values.items()}


def sent_value(value: Sent | Sequence[Sent]) -> Node:
    if isinstance(value, (str, int, float)):
        return scalar(value if isinstance(value, str) else json.dumps(value), IN_THE_REQUEST)
    return Node("sequence", Place(file=IN_THE_REQUEST), items=[sent_value(each) for each in value])


def resubmitted(params: Iterable[Parameter]) -> dict[str, Node]:
    """Those that were given at the submit; of the others the default counts, as it is now."""
    return {each.name: scalar(each.value, AT_THE_SUBMIT) for each in params if each.given}
