"""`jobs:` and `defaults:` of a native workflow, entry by entry.

May know: forms, references, shell and name templates. One rule: an entry that cannot be read is left out whole, and its findings say why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from stager.model.files import OnExists
from stager.readers.lines import Node, closest
from stager.readers.native_environments import read_locks
from stager.readers.native_foreach import read_foreach
from stager.readers.native_form import Fields, Form
from stager.readers.native_images import read_container
from stager.readers.native_include import with_type
from stager.readers.native_references import Names
from stager.readers.native_scatter_key import read_scatter
from stager.readers.native_shell import WORD, compile_shell
from stager.readers.native_spec import (
    ENGINES_JOB_KEYS,
    ENGINES_SHARED_KEYS,
    INPUT_KEYS,
    JOB_KEYS,
    OUTPUT_KEYS,
    OUTPUT_VALUE_KEYS,
    SHARED_KEYS,
    TYPE_KEYS,
    DestinationSpec,
    InputSpec,
    JobSettings,
    JobSpec,
    OutputSpec,
    Reference,
)
from stager.readers.native_template import HOLE, Hole, Template
from stager.readers.native_when import holds
from stager.readers.paths import clean_path, has_wildcard
from stager.readers.shells import foreign_text, quotes_like_sh, read_shell

JOB_NAME = re.compile(r"[^\W\d][\w.-]{0,99}")
# As engines call theirs.
ENGINES_JOB_NAME = re.compile(r"\w[\w.:+@~-]{0,249}")
# What an engine has in the place of a scatter.
SCATTER_ELSEWHERE = "name all jobs here, or have stager run this workflow: leave 'engine' out"
SCATTER_OF = {
    "airflow": "map its task in the DAG, with more_inputs and more_outputs, or run the whole workflow as one task, by StagerSubmitOperator",
    "pegasus": "put its jobs into a sub-workflow that is planned when the list is there, or have stager run all: leave 'engine' out",
}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_VARIABLE = re.compile(r"(?:.*_)?(?:PASSWORD|PASSWD|SECRET|TOKEN|SECRET_ACCESS_KEY|ACCESS_KEY|API_KEY|PRIVATE_KEY)", re.IGNORECASE)


def read_settings(fields: Fields, names: Names, base: JobSettings) -> JobSettings:
    """The keys that `defaults:` and jobs share; `env` is united, the rest replaced."""
    memory, timeout = fields.size("memory", base.memory_bytes), fields.duration("timeout", base.timeout_s)
    if timeout is not None and timeout <= 0:
        fields.form.findings.note(fields.place("timeout"), fields.at("timeout"), "a job needs a time above 0; leave it out for no limit")
    limit = read_memory_limit(fields, memory, base.memory_limit_bytes)
    container = read_container(fields, names, base.container)
    venv, conda = read_locks(fields, names, base, container)
    return JobSettings(
        shell=read_shell(fields, base.shell),
        cores=fields.integer("cores", base.cores, least=1),
        memory_bytes=memory,
        memory_limit_bytes=limit,
        retries=fields.integer("retries", base.retries),
        timeout_s=timeout,
        env=read_env(fields, names, base.env),
        env_pass=read_env_pass(fields, base.env_pass),
        isolate=fields.switch("isolate", base.isolate),
        idempotent=fields.boolean("idempotent", base.idempotent),
        deterministic=fields.boolean("deterministic", base.deterministic),
        reuse=read_reuse(fields, base.reuse),
        on_exists=fields.choice("on_exists", OnExists, OnExists.FAIL) if fields.get("on_exists") else base.on_exists,
        container=container,
        venv=venv,
        conda=conda,
    )


def read_reuse(fields: Fields, base: bool) -> bool:
    """Who says `deterministic: false` says that what was made before is not what would be made now."""
    if fields.get("deterministic") is not None:
        base = base and fields.boolean("deterministic", base)
    return fields.boolean("reuse", base)


def read_memory_limit(fields: Fields, memory: int | None, default: int | None) -> int | None:
    limit = fields.limit("memory_limit", default)
    if limit and memory is not None and limit < memory:
        text = "a job may use what it declares: memory_limit is less than memory here"
        name = "memory_limit" if fields.get("memory_limit") else "memory"
        fields.form.findings.note(fields.place(name), fields.at(name), text)
    return limit


def read_defaults(form: Form, node: Node | None, names: Names, engine: str = "") -> JobSettings:
    if node is None or node.is_null:
        return JobSettings()
    fields = form.fields(node, "defaults", SHARED_KEYS)
    if engine:
        refuse_native(fields, engine, ENGINES_SHARED_KEYS)
    return read_settings(fields, names, JobSettings())


def refuse_native(fields: Fields, engine: str, known: tuple[str, ...]) -> None:
    """Refuses keys that only mean something for a job that stager starts itself."""
    for name in [name for name in fields.nodes if name not in known]:
        text = f"{engine} runs the jobs of this workflow, so '{name}' would mean nothing; leave it out"
        if name == "scatter":
            what = SCATTER_OF.get(engine, SCATTER_ELSEWHERE)
            text = f"{engine} runs the jobs of this workflow, and decides itself how many there are; {what}"
        fields.form.findings.note(fields.place(name), fields.at(name), text)


def read_env(fields: Fields, names: Names, base: tuple[tuple[str, Template], ...]) -> tuple[tuple[str, Template], ...]:
    env = dict(base)
    for name_node, value in fields.form.pairs(fields.get("env"), fields.at("env")):
        name, key = name_node.text, f"{fields.at('env')}.{name_node.text}"
        template = names.value(value, key)
        if not VARIABLE.fullmatch(name):
            fields.form.findings.note(name_node.place, key, f"{name!r} cannot name an environment variable; use letters, digits and _")
        elif SECRET_VARIABLE.fullmatch(name):
            fields.form.findings.note(
                name_node.place, key, f"{name} looks like a secret, which does not belong in a workflow file; write env_pass: [{name}]"
            )
        elif name in names.keys:
            fields.form.findings.note(
                name_node.place, key, f"the foreach key {name!r} is a variable of the job already; choose another name"
            )
        elif name in fields.form.params and template is not None and template.constant != fields.form.params[name]:
            text = f'the parameter {name!r} is a variable of jobs that use it; choose another name, or write "{{{name}}}"'
            fields.form.findings.note(name_node.place, key, text)
        elif template is not None:
            if any(isinstance(piece, str) and "\0" in piece for piece in template.pieces):
                fields.form.findings.note(value.place, key, "the value holds a NUL character; no environment can carry it")
            env[name] = template
    return tuple(env.items())


def read_env_pass(fields: Fields, base: tuple[str, ...]) -> tuple[str, ...]:
    passed = dict.fromkeys(base)
    for name, node, key in fields.form.texts(fields.get("env_pass"), fields.at("env_pass"), single=True):
        if VARIABLE.fullmatch(name):
            passed[name] = None
        else:
            fields.form.findings.note(
                node.place, key, f"{name!r} cannot name an environment variable; write names only, as in [HOME, LANG]"
            )
    return tuple(passed)


def read_types(form: Form, node: Node | None) -> dict[str, Node]:
    """By name. What stands in one is read where a job is of it; here it is seen that a job can have it."""
    for name_node, value in form.pairs(node, "types"):
        key = f"types.{name_node.text}"
        try:
            clean_path(name_node.text)
        except ValueError as error:
            form.findings.note(name_node.place, key, str(error))
        if form.expect(value, key, "mapping"):
            form.fields(value, key, TYPE_KEYS)
            form.types[name_node.text] = value
    return form.types


def read_jobs(
    form: Form, node: Node | None, names: Names, defaults: JobSettings, types: Mapping[str, Node], engine: str = ""
) -> dict[str, JobSpec]:
    jobs: dict[str, JobSpec] = {}
    allowed = ENGINES_JOB_NAME if engine else JOB_NAME
    for name_node, value in form.pairs(node, "jobs"):
        name, key = name_node.text, f"jobs.{name_node.text}"
        if not allowed.fullmatch(name):
            form.findings.note(name_node.place, key, f"{name!r} cannot name a job; use letters, digits, _ . and -, a letter first")
        if value.kind != "mapping" and name in JOB_KEYS:
            text = f"{name!r} is a key of a job, and stands where a job's name would: indent it further than the name above it"
            form.findings.note(name_node.place, key, text)
        elif form.expect(value, key, "mapping"):
            note_near_type(form, value, types, key)
            job = read_job(form, name_node, with_type(value, types, TYPE_KEYS), names, defaults, engine)
            if job is not None:
                jobs[name] = job
    return jobs


def note_near_type(form: Form, node: Node, types: Mapping[str, Node], key: str) -> None:
    """A type that nobody defines is one that measurements are kept by, unless it looks like a slip."""
    named = next((value for name, value in node.items if name.text == "type"), None)
    if named is not None and named.text not in types and types:
        near = closest(named.text, types)
        if near is not None:
            text = f"there is no type {named.text!r} under 'types:'; did you mean {near!r}?"
            form.findings.note(named.place, form.join(key, "type"), text)


def left_out_by(fields: Fields) -> str:
    """The condition, where it does not hold; else nothing."""
    node, form = fields.get("when"), fields.form
    if node is None or not form.expect(node, fields.at("when"), "scalar"):
        return ""
    try:
        return "" if holds(node.text, form.declared, form.params, form.used) else node.text
    except ValueError as error:
        form.findings.note(node.place, fields.at("when"), str(error))
        return ""


def read_job(form: Form, name_node: Node, node: Node, names: Names, defaults: JobSettings, engine: str) -> JobSpec | None:
    """None: nobody knows the keys of its foreach, by which all its texts are read."""
    name = name_node.text
    key = f"jobs.{name}"
    fields = form.fields(node, key, JOB_KEYS)
    if engine:
        refuse_native(fields, engine, ENGINES_JOB_KEYS)
    axes = read_foreach(fields.get("foreach"), fields.at("foreach"), names)
    scatter, scattered = read_scatter(fields, names, axes)
    if (fields.get("foreach") and not axes) or (fields.get("scatter") and not scattered):
        form.unread = True
        return None
    axes += scattered
    names = names.within(tuple(key for axis in axes for key in axis.keys))
    settings = read_settings(fields, names, defaults)
    argv, shell, holes = read_run(fields, names, settings.shell) if not engine else ((), "", ())
    params = form.params
    form.used.update(hole.key for hole in holes if hole.key in params)
    stdin = read_stdin(fields, names)
    stdout, stderr = (read_stream(fields, names, stream) for stream in ("stdout", "stderr"))
    after = tuple(
        (template, member.place, at)
        for text, member, at in form.texts(fields.get("after"), fields.at("after"), single=True)
        if (template := names.template(text, member, at))
    )
    return JobSpec(
        name=name,
        place=name_node.place,
        key=key,
        job_type=fields.parsed("type", clean_path, name),
        # What engines call their runs differs from run to run, and says nothing of what is measured.
        type_is_shared="type" in fields or bool(engine),
        axes=axes,
        argv=argv,
        shell=shell,
        shell_holes=tuple(hole for hole in holes if hole.key not in params),
        shell_params=shell_params(fields, [hole for hole in holes if hole.key in params]),
        inputs=with_stdin(read_inputs(fields, names), fields, stdin),
        outputs=with_streams(read_outputs(fields, names), fields, (stdout, stderr)),
        after=after,
        streams=(stdin.path if stdin else None, stdout, stderr),
        settings=settings,
        when=left_out_by(fields),
        scatter=scatter,
    )


def read_run(fields: Fields, names: Names, program: tuple[str, ...]) -> tuple[tuple[Template, ...], str, tuple[Hole, ...]]:
    """(argv, shell, holes): a text goes to the job's shell, a list is a program and its arguments."""
    node, key = fields.get("run"), fields.at("run")
    if node is None:
        fields.form.findings.note(
            fields.node.place, fields.key, "the job has nothing to run; write run: COMMAND, or run: [PROGRAM, ARGUMENT, …]"
        )
        return (), "", ()
    if node.kind == "sequence":
        if fields.get("shell"):
            fields.form.findings.note(fields.place("shell"), fields.at("shell"), "a list under run is read by no shell; leave 'shell' out")
        argv = tuple(template for member, at in fields.form.members(node, key) for template in arguments(member, at, names))
        if not argv or argv[0] == Template(("",)):
            fields.form.findings.note(node.place, key, "the list is empty; its first member is the program")
        if any(isinstance(piece, str) and "\0" in piece for template in argv for piece in template.pieces):
            fields.form.findings.note(node.place, key, "an argument holds a NUL character; no program can be given it")
        return argv, "", ()
    text = fields.form.text(node, key)
    if not text.strip() or "\0" in text:
        fields.form.findings.note(node.place, key, "the command is empty" if not text.strip() else "the command holds a NUL character")
    try:
        apart = {name: len(fields.form.params.lists[name]) for name in fields.form.params.apart}
        shell, holes = compile_shell(text, names.known, apart) if quotes_like_sh(program) else foreign_text(text, names.known, program[0])
        return (), shell, tuple(dict.fromkeys((*holes, *params_named(text, fields.form.params))))
    except ValueError as error:
        fields.form.findings.note(node.place, key, str(error))
        return (), text, ()


def arguments(node: Node, key: str, names: Names) -> tuple[Template, ...]:
    """One, or as many as a list has members that stands there alone and says nothing of what joins them."""
    params = names.form.params
    if node.kind == "scalar" and params.named_alone(node.text) in params.apart:
        return tuple(Template((member,)) for member in names.form.listed(node.text) or ())
    template = names.value(node, key)
    return () if template is None else (template,)


def shell_params(fields: Fields, holes: list[Hole]) -> tuple[tuple[str, str], ...]:
    """The variables that the text takes of parameters, with their values."""
    try:
        return tuple((hole.variable, hole.value(fields.form.params)) for hole in holes)
    except ValueError as error:
        fields.form.findings.note(fields.place("run"), fields.at("run"), str(error))
        return ()


def params_named(text: str, params: Mapping[str, str]) -> list[Hole]:
    """Those that a text may take from the environment: each whose name is a word of it, beside what is put in. One too many does no
    harm.
    """
    return [Hole(word) for word in WORD.findall(HOLE.sub(" ", text)) if word in params] if params else []


def read_stdin(fields: Fields, names: Names) -> Reference | None:
    node, key = fields.get("stdin"), fields.at("stdin")
    if node is None:
        return None
    reference = names.reference(node, key)
    if reference and (reference.glob or reference.directory):
        fields.form.findings.note(node.place, key, "standard input is one file; name it")
        return None
    return reference


def read_stream(fields: Fields, names: Names, stream: str) -> Template | None:
    node = fields.get(stream)
    if node is None:
        return None
    text = fields.form.text(node, fields.at(stream))
    return names.path(text, node, fields.at(stream)) if text else None


def with_stdin(inputs: tuple[InputSpec, ...], fields: Fields, stdin: Reference | None) -> tuple[InputSpec, ...]:
    """A file that is read as standard input is an input, also where the list does not say so."""
    if stdin is None or any(stdin.path == (spec.put_at or spec.reference.path) for spec in inputs):
        return inputs
    return (*inputs, InputSpec(stdin, fields.place("stdin"), fields.at("stdin")))


def with_streams(outputs: tuple[OutputSpec, ...], fields: Fields, streams: tuple[Template | None, ...]) -> tuple[OutputSpec, ...]:
    """Files to which standard output and error are written are outputs, also where the list does not say so."""
    for stream, template in zip(("stdout", "stderr"), streams, strict=True):
        if template is not None and all(spec.path != template for spec in outputs):
            outputs = (*outputs, OutputSpec(template, fields.place(stream), fields.at(stream)))
    return outputs


def read_inputs(fields: Fields, names: Names) -> tuple[InputSpec, ...]:
    """A list of references and mappings, or one mapping: path in the sandbox -> reference."""
    node, key = fields.get("inputs"), fields.at("inputs")
    specs: list[InputSpec | None] = []
    if node is not None and node.kind == "mapping":
        for path_node, value in fields.form.pairs(node, key):
            at = f"{key}.{path_node.text}"
            for _ in fields.form.for_each((path_node, value), at):
                put_at = names.path(path_node.text, path_node, at)
                specs.append(read_input(fields.form, names, value, at, put_at))
    else:
        for member, at in fields.form.members(node, key, single=True):
            specs += [read_input(fields.form, names, member, at, None) for _ in fields.form.for_each((member,), at)]
    return tuple(spec for spec in specs if spec)


def read_input(form: Form, names: Names, node: Node, key: str, put_at: Template | None) -> InputSpec | None:
    executable = literal = False
    place = node.place
    if node.kind == "mapping":
        known = tuple(name for name in INPUT_KEYS if put_at is None or name != "as")
        fields = form.fields(node, key, known)
        executable, literal = fields.boolean("executable", False), fields.boolean("literal", False)
        if fields.get("as"):
            put_at = names.path(form.text(fields.nodes["as"], fields.at("as")), fields.nodes["as"], fields.at("as"))
        if fields.get("from") is None:
            form.findings.note(place, key, "the input names no file; write from: NAME or from: origin:path")
            return None
        node, key = fields.nodes["from"], fields.at("from")
    reference = names.reference(node, key, literal=literal)
    return None if reference is None else InputSpec(reference, place, key, put_at, executable)


def read_outputs(fields: Fields, names: Names) -> tuple[OutputSpec, ...]:
    """A list of names and mappings, or one mapping: name -> destination, or -> what is to say of it."""
    node, key = fields.get("outputs"), fields.at("outputs")
    specs: list[OutputSpec | None] = []
    if node is not None and node.kind == "mapping":
        for name_node, value in fields.form.pairs(node, key):
            at = f"{key}.{name_node.text}"
            specs += [read_output(fields.form, names, name_node, value, at) for _ in fields.form.for_each((name_node, value), at)]
        return tuple(spec for spec in specs if spec)
    for member, at in fields.form.members(node, key, single=True):
        for _ in fields.form.for_each((member,), at):
            if member.kind == "mapping":
                specs.append(read_long_output(fields.form, names, member, at))
            else:
                specs.append(read_output(fields.form, names, member, None, at))
    return tuple(spec for spec in specs if spec)


def read_long_output(form: Form, names: Names, node: Node, key: str) -> OutputSpec | None:
    fields = form.fields(node, key, OUTPUT_KEYS)
    named = [name for name in ("file", "dir") if fields.get(name)]
    if len(named) != 1:
        form.findings.note(node.place, key, "an output is written with one of file: NAME or dir: NAME/")
        return None
    spec = read_output_fields(form, names, fields.nodes[named[0]], fields, key)
    return replace(spec, directory=spec.directory or named[0] == "dir") if spec else None


def read_output(form: Form, names: Names, name_node: Node, value: Node | None, key: str) -> OutputSpec | None:
    """A name with nothing, a destination, or a mapping after it."""
    if value is not None and value.kind == "mapping":
        return read_output_fields(form, names, name_node, form.fields(value, key, OUTPUT_VALUE_KEYS), key)
    destination = None if value is None or value.is_null else names.destination(value, key)
    return named_output(form, names, name_node, key, literal=False, destination=destination)


def read_output_fields(form: Form, names: Names, name_node: Node, fields: Fields, key: str) -> OutputSpec | None:
    to = fields.get("to")
    destination = names.destination(to, fields.at("to")) if to is not None else None
    if fields.get("on_exists"):
        on_exists = fields.choice("on_exists", OnExists, OnExists.FAIL)
        if to is None:
            form.findings.note(
                fields.place("on_exists"), fields.at("on_exists"), "an output without a destination overwrites nothing; add to: origin:path"
            )
        destination = replace(destination, on_exists=on_exists) if destination else None
    spec = named_output(form, names, name_node, key, literal=fields.boolean("literal", False), destination=destination)
    if spec is None:
        return None
    return replace(
        spec, optional=fields.boolean("optional", False), size_bytes=fields.size("size"), executable=fields.boolean("executable", False)
    )


def named_output(
    form: Form, names: Names, node: Node, key: str, *, literal: bool, destination: DestinationSpec | None
) -> OutputSpec | None:
    text = form.text(node, key)
    if not text:
        return None
    if has_wildcard(text) and not literal:
        fix = "name each file, or write a directory, as in results/, for files known only afterwards (literal: true keeps the characters)"
        form.findings.note(node.place, key, f"{text!r} is a pattern, and outputs are named; {fix}")
        return None
    path = names.path(text.rstrip("/") or text, node, key)
    return None if path is None else OutputSpec(path, node.place, key, directory=text.endswith("/"), destination=destination)
