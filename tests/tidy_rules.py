"""The rules of the project, as functions from source text to findings. tests/test_tidy.py applies them and shows that each of them fires.

May know: ast and the layout of design and docs/decisions. One rule: a finding says where, what, and what to do instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set

FUNCTION_LINES_MAX, FILE_LINES_MAX, METHODS_MAX = 60, 500, 20

# The lowest layer first. Packages that share a line may not import each other, those in SOCIABLE may.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("model",),
    ("planning",),
    ("scheduler",),
    ("ports", "driver", "tasks", "wire", "rest"),
    ("adapters", "readers", "client"),
    ("runtime", "sim"),
    ("best_plan",),
    ("estimate",),
    ("whatif",),
    ("service", "fs"),
    ("cli",),
)
SOCIABLE = frozenset({"ports", "driver", "tasks", "wire", "rest"})
LAYER_OF = {package: number for number, packages in enumerate(LAYERS) for package in packages}
# What runs on a compute node stands apart: small, with little below it, started from the fifth layer up.
WORKER_MAY_IMPORT, WORKER_SEEN_FROM = frozenset({"worker", "model", "wire"}), 4

# The client, what it speaks, and the errors that it raises; the file system is a client too.
PLUGINS_MAY_IMPORT = ("stager.client.", "stager.fs.", "stager.rest.", "stager.wire.", "stager.model.errors.")

PURE_PACKAGES = frozenset({"model", "planning", "scheduler"})
PURE_MODULES = frozenset(
    """__future__ abc base64 bisect binascii collections contextlib copy csv dataclasses difflib enum fnmatch fractions functools hashlib
    heapq itertools json math msgspec numbers operator re statistics string struct textwrap types typing zlib stager""".split()
)
# Who starts a task of asyncio itself, and who looks at what that ends with. All others go through stager/tasks.py.
STARTS_TASKS = {
    "stager/tasks.py": "it is the register",
    "stager/runtime/node_link.py": "the one that runs the link waits for it, and takes its exception",
    "stager/runtime/node_calls.py": "each call that needs the origin waits for the word to the node, and raises its exception",
    "stager/runtime/together.py": "it hands each exception to those who asked",
    "stager/service/commands.py": "it only waits for an event, beside something else, and is ended at once",
}
# hash() differs from process to process, so a decision that rests on it cannot be replayed.
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "breakpoint", "__import__", "hash"})

ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv"})
BANNED_NAMES = frozenset({"util", "utils", "helper", "helpers", "common", "base", "misc"})
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def package_of(module: str) -> str:
    """`stager.planning.plan` -> `planning`; `stager` itself is none."""
    return module.split(".")[1] if "." in module else ""


def imported_modules(tree: ast.AST, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """(line, full name); `from a import b` gives a.b, which names a module or something in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            start = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (start, node.module) if part)
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def layer_findings(tree: ast.AST, module: str, is_package: bool = False) -> Iterator[str]:
    mine = package_of(module)
    if mine and mine != "worker" and mine not in LAYER_OF:
        yield f"{module}: no layer for the package {mine!r}; add it to LAYERS where the design puts it"
        return
    for line, name in imported_modules(tree, module, is_package):
        theirs = package_of(name) if name.startswith("stager.") else ""
        if theirs in ("", mine, "__version__") or not mine:
            continue
        if not may_import(mine, theirs):
            yield f"{module}:{line}: {mine} may not import {theirs}: import only from layers below, never from neighbours"


def may_import(mine: str, theirs: str) -> bool:
    if mine == "worker":
        return theirs in WORKER_MAY_IMPORT
    if theirs == "worker":
        return LAYER_OF[mine] >= WORKER_SEEN_FROM
    if theirs not in LAYER_OF:
        return False
    return LAYER_OF[theirs] < LAYER_OF[mine] or {mine, theirs} <= SOCIABLE


def plugin_findings(tree: ast.AST, where: str) -> Iterator[str]:
    """A plugin lives in the environment of an engine, beside any version of ours."""
    for line, name in imported_modules(tree, "plugin"):
        if name.split(".")[0] == "stager" and not f"{name}.".startswith(PLUGINS_MAY_IMPORT):
            yield f"{where}:{line}: a plugin imports stager's client and what that speaks only, not {name}"


def purity_findings(tree: ast.AST, module: str) -> Iterator[str]:
    if package_of(module) not in PURE_PACKAGES:
        return
    for line, name in imported_modules(tree, module):
        if name.split(".")[0] not in PURE_MODULES:
            yield f"{module}:{line}: {name} in a pure package; let the fact arrive on an event, or the effect leave as a command"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"{module}:{node.lineno}: {node.func.id}() in a pure package"
        if isinstance(node, (ast.For, ast.comprehension)) and makes_set(node.iter):
            yield f"{module}:{node.iter.lineno}: the order of a set differs from process to process; sort it, or use dict.fromkeys"


def makes_set(node: ast.expr) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return called or isinstance(node, (ast.Set, ast.SetComp))


def size_findings(tree: ast.AST, text: str, where: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{where}: {lines} lines, at most {FILE_LINES_MAX}; a noun is missing"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{where}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) for part in node.body)
            if methods > METHODS_MAX:
                yield f"{where}:{node.lineno}: class {node.name} has {methods} methods, at most {METHODS_MAX}"


def manner_findings(tree: ast.AST, where: str, *, may_print: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{where}:{node.lineno}: bare except; name what you can handle"
            elif ast.unparse(node.type) in ("Exception", "BaseException") and all(isinstance(part, ast.Pass) for part in node.body):
                yield f"{where}:{node.lineno}: every error swallowed; name what you can handle"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and not may_print:
            yield f"{where}:{node.lineno}: print outside cli; return the fact, or log it"
        elif isinstance(node, ast.ClassDef) and BANNED_NAMES & set(words_of(node.name)):
            yield f"{where}:{node.lineno}: class {node.name} is named after nothing; name the noun"


def environment_findings(tree: ast.AST, where: str) -> Iterator[str]:
    for node in ast.walk(tree):
        direct = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr in ENVIRONMENT
        imported = isinstance(node, ast.ImportFrom) and node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
        if direct or imported:
            yield f"{where}:{node.lineno}: reads the environment; service/settings.py does that, for all"


def task_findings(tree: ast.AST, where: str) -> Iterator[str]:
    """A task that nobody keeps may vanish, and nobody ever sees its exception."""
    awaited = [node.value.func for node in ast.walk(tree) if isinstance(node, ast.Await) and isinstance(node.value, ast.Call)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future", "run_in_executor") and node not in awaited:
            yield f"{where}:{node.lineno}: {node.attr} beside the register of tasks; start it with stager.tasks.Tasks"


def typed_findings(tree: ast.AST, where: str) -> Iterator[str]:
    """In the modules that say what passes between the layers nothing may be anything."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "Any" for alias in node.names):
            yield f"{where}:{node.lineno}: Any in a contract; name the type, or say object"
        elif isinstance(node, ast.Attribute) and node.attr == "Any":
            yield f"{where}:{node.lineno}: Any in a contract; name the type, or say object"


def docstring_findings(tree: ast.Module, where: str) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield f"{where}: no module docstring: what is it for, what may it know, what is its one rule?"


def words_of(name: str) -> list[str]:
    """`BaseOrigin`, `base_origin` and `base-origin` -> base, origin."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def name_findings(path: str) -> Iterator[str]:
    """`path` is relative to the project."""
    for part in path.split("/"):
        if BANNED_NAMES & set(words_of(part.split(".")[0])):
            yield f"{path}: {part} is named after nothing; name the noun"


def unfinished_findings(text: str, where: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{where}:{number}: unfinished: {line.strip()[:80]}"


def dead_modules(sources: Mapping[str, ast.AST], entry_points: Set[str], packages: Set[str]) -> list[str]:
    """Modules that no other imports or names: in a string (`"stager.cli.plan:main"`), or by f"stager.cli.{name}" beside the names."""
    alive = set(entry_points) | set(packages)
    roots = {module.split(".")[0] for module in sources}
    for module, tree in sources.items():
        wanted = {name for _, name in imported_modules(tree, module, module in packages)}
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        wanted |= {text.split(":")[0] for text in texts if text.split(".")[0] in roots}
        wanted |= {
            prefix + text.replace("-", "_") for prefix in texts if prefix.startswith("stager.") and prefix.endswith(".") for text in texts
        }
        for name in wanted:
            parents = {name, name.rpartition(".")[0]}
            alive |= parents - {module}
    return sorted(f"{module}: no other module imports it; wire it up or delete it" for module in sources if module not in alive)


BAKED_PLACE = re.compile(r'\b(?:option_)?env!\(\s*"CARGO_(?:MANIFEST_(?:DIR|PATH)|WORKSPACE_DIR)"')
RUST_FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?(?:unsafe )?(?:extern \"C\" )?fn (\w+)", re.MULTILINE)


def baked_place_findings(text: str, where: str) -> Iterator[str]:
    """Clones share what is built: a test that holds the place of the clone it was built in fails when that one is gone."""
    for match in BAKED_PLACE.finditer(text):
        yield f"{where}:{text[: match.start()].count(chr(10)) + 1}: the place of a clone is built in; ask std::env::var when it runs"


def rust_findings(text: str, where: str) -> Iterator[str]:
    yield from rust_size_findings(text, where)
    yield from baked_place_findings(text, where)


def rust_size_findings(text: str, where: str) -> Iterator[str]:
    """Formatted Rust: a function ends at the first closing brace that stands as far left as its `fn`. Inline tests do not count."""
    body = text.split("\n#[cfg(test)]\nmod tests {")[0]
    lines = len(body.splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{where}: {lines} lines, at most {FILE_LINES_MAX}; a noun is missing"
    for match in RUST_FUNCTION.finditer(text):
        rest = text[match.start() :].lstrip("\n")
        indent = match[1].lstrip("\n")
        first_line = rest.split("\n", 1)[0]
        if first_line.rstrip().endswith(("}", ";")):
            continue
        ending = re.search(rf"^{indent}}}", rest, re.MULTILINE)
        length = rest[: ending.start()].count("\n") + 1 if ending else 0
        if length > FUNCTION_LINES_MAX:
            yield f"{where}:{text[: match.start(2)].count(chr(10)) + 1}: fn {match[2]} has {length} lines, at most {FUNCTION_LINES_MAX}"
