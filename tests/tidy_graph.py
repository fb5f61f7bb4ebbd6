"""Which files need which: circles and layers, as functions from source text to findings. tests/test_tidy.py applies them.

May know: how Python and Rust name other modules. One rule: an edge is a name in the source, so no compiler is asked, and code of tests
inside a module does not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePosixPath

from tests.tidy_rules import imported_modules

CYCLE_FILES_MAX = 5

# The lowest layer of ionode/node first. A module is a file below src, or a directory; those of one row do not know each other.
NODE_LAYERS: tuple[tuple[str, ...], ...] = (
    ("blocking", "blocks", "calls", "claims", "clock", "failure", "in_flight", "lines", "logging", "metrics", "wire"),
    ("sandbox", "stripes", "tls"),
    ("pack_format", "store"),
    ("context", "fsck", "hash", "origin_checksums", "peers"),
    ("client", "fingerprints", "health", "transfer_agent"),
    ("bench", "replicas"),
    ("transfers",),
    ("packs", "scrub"),
    ("attempts",),
    ("node",),
    ("exposition", "s3", "shutdown"),
    ("http",),
    ("serve",),
)
CRATE_ROOTS = ("lib", "main")

Graph = dict[str, set[str]]
# What a path in Rust says from the crate's root: () is the crate, ("store", "tree") is crate::store::tree.
Name = tuple[str, ...]

RUST_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                          # comments
    |r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"  # strings
    |b?'(?:\\.[^']*|[^'\\])'                        # characters, not lifetimes
    |(?P<token>\#\[cfg\(test\)\]|[A-Za-z_]\w*|::|[{}();,*])""",
    re.DOTALL | re.VERBOSE,
)


def cycle_findings(graph: Mapping[str, Set[str]]) -> Iterator[str]:
    for files in components(graph):
        if len(files) > CYCLE_FILES_MAX:
            yield (
                f"{len(files)} files need one another in a circle, at most {CYCLE_FILES_MAX}: {', '.join(sorted(files))}; "
                "let the lower one take what it needs, or have the file above call both"
            )


def layer_findings(graph: Mapping[str, Set[str]], place: str, layers: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """Of one crate, whose sources lie in `place`. Its roots may know all."""

    def module_of(path: str) -> str:
        return path.removeprefix(place).split("/")[0].removesuffix(".rs")

    row_of = {module: row for row, modules in enumerate(layers) for module in modules}
    there = {module_of(path) for path in graph}
    yield from (f"{place}: no module {module!r}; take it out of its layer" for module in row_of if module not in there)
    for path in sorted(graph):
        mine = module_of(path)
        if mine in CRATE_ROOTS:
            continue
        if mine not in row_of:
            yield f"{path}: no layer for {mine!r}; add it where docs/architecture.md puts it"
            continue
        for theirs in sorted({module_of(other) for other in graph[path]} & row_of.keys() - {mine}):
            if row_of[theirs] >= row_of[mine]:
                yield f"{path}: {mine} may not use {theirs}: use only layers below, never neighbours"


def components(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan), of which no path leads back to an earlier one. Recursion is as deep as a chain of files."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_files: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        order[file] = lowest[file] = len(order)
        open_files.append(file)
        for other in sorted(graph.get(file, ())):
            if other not in order:
                visit(other)
                lowest[file] = min(lowest[file], lowest[other])
            elif other in open_files:
                lowest[file] = min(lowest[file], order[other])
        if lowest[file] == order[file]:
            start = open_files.index(file)
            found.append(open_files[start:])
            del open_files[start:]

    for file in sorted(graph):
        if file not in order:
            visit(file)
    return found


def python_graph(trees: Mapping[str, ast.AST], packages: Set[str]) -> Graph:
    """By module names. A package that its own modules import from is one of them; that a module lies in a package is no edge."""

    def known(name: str) -> str:
        return name if name in trees else name.rpartition(".")[0]

    return {
        module: {known(name) for _, name in imported_modules(tree, module, module in packages) if known(name) in trees} - {module}
        for module, tree in trees.items()
    }


def rust_graph(sources: Mapping[str, str]) -> Graph:
    """Of one crate, by paths such as `ionode/node/src/store/mod.rs`. A `mod` line tells where a module lies; it is no edge. Neither is a
    `pub use` whose name the file itself does not need: who uses the name needs the file that it comes from."""
    graph: Graph = {}
    for root in sorted(path for path in sources if PurePosixPath(path).name in ("lib.rs", "main.rs")):
        modules = rust_modules(sources, root)
        names = {module: rust_names(sources[path], module, modules) for module, path in modules.items()}
        passed_on = {(*module, name): full for module, (_, exports) in names.items() for name, full in exports.items()}
        for module, (needed, _) in names.items():
            leads_to = {modules[longest(origin_of(full, passed_on), modules)] for full in needed}
            graph[modules[module]] = leads_to - {modules[module]}
    return graph


def rust_modules(sources: Mapping[str, str], root: str) -> dict[Name, str]:
    """Where each module of a crate lies."""
    modules: dict[Name, str] = {(): root}
    waiting: list[Name] = [()]
    while waiting:
        module = waiting.pop()
        path = PurePosixPath(modules[module])
        below = path.parent if path.name in ("lib.rs", "main.rs", "mod.rs") else path.with_suffix("")
        tokens = rust_tokens(sources[str(path)])
        for word, name, end in zip(tokens, tokens[1:], tokens[2:], strict=False):
            places = [place for place in (f"{below}/{name}.rs", f"{below}/{name}/mod.rs") if place in sources]
            if (word, end) == ("mod", ";") and places:
                modules[*module, name] = places[0]
                waiting.append((*module, name))
    return modules


def rust_names(source: str, module: Name, modules: Mapping[Name, str]) -> tuple[set[Name], dict[str, Name]]:
    """What a file needs of its crate, and what it only passes on, by name: from `use` and from paths that it spells out, be they from the
    crate or from a module that it knows."""
    tokens = rust_tokens(source)
    scope = {name[-1]: name for name in modules if name and name[:-1] == module}
    needed: set[Name] = set()
    exports: dict[str, Name] = {}
    spelled: list[Name] = []
    at = 0
    while at < len(tokens):
        if tokens[at] == "use":
            end = tokens.index(";", at)
            for path, name in use_paths(tokens[at + 1 : end]):
                full = absolute(path, module, scope)
                if full is not None and is_public(tokens, at) and name != "*":
                    exports[name] = full
                elif full is not None:
                    needed.add(full)
                if full in modules:
                    scope[name] = full
            at = end
        elif tokens[at].isidentifier() and tokens[at - 1 : at] not in (["::"], ["mod"]):
            path, at = path_at(tokens, at)
            spelled.append(path)
        at += 1
    for path in spelled:
        full = exports.get(path[0]) or (absolute(path, module, scope) if len(path) > 1 else None)
        if full is not None:
            needed.add(full)
    return needed, exports


def is_public(tokens: list[str], at: int) -> bool:
    """Whether a `use` stands after `pub` or `pub(crate)`."""
    return tokens[at - 1 : at] == ["pub"] or (tokens[at - 1 : at] == [")"] and tokens[at - 4 : at - 2] == ["pub", "("])


def origin_of(full: Name, passed_on: Mapping[Name, Name]) -> Name:
    """Where a name comes from that modules pass on to one another."""
    for _ in range(len(passed_on)):
        ends = [end for end in range(1, len(full) + 1) if full[:end] in passed_on]
        if not ends:
            break
        full = (*passed_on[full[: ends[0]]], *full[ends[0] :])
    return full


def rust_tokens(source: str) -> list[str]:
    """Names and what joins them; without comments, strings and what is compiled for tests only."""
    tokens = [match["token"] for match in RUST_TOKEN.finditer(source) if match["token"]]
    kept: list[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at] == "#[cfg(test)]":
            at = end_of_item(tokens, at)
        else:
            kept.append(tokens[at])
        at += 1
    return kept


def end_of_item(tokens: list[str], at: int) -> int:
    """The `;` or the `}` that an item ends with."""
    depth = 0
    for place in range(at + 1, len(tokens)):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(tokens[place], 0)
        if depth == 0 and tokens[place] in (";", "}"):
            return place
    return len(tokens)


def path_at(tokens: list[str], at: int) -> tuple[Name, int]:
    path = [tokens[at]]
    while tokens[at + 1 : at + 2] == ["::"] and tokens[at + 2 : at + 3] and tokens[at + 2].isidentifier():
        at += 2
        path.append(tokens[at])
    return tuple(path), at


def use_paths(tokens: list[str]) -> Iterator[tuple[Name, str]]:
    """`a::{b, c::{self, d as e}}` gives (a, b) as b, (a, c) as c, (a, c, d) as e."""
    prefixes: list[Name] = [()]
    path: Name = ()
    name = ""
    for token in [*tokens, ","]:
        if token == "{":
            prefixes.append(path)
            path = ()
        elif token in (",", "}"):
            if path:
                whole = path[:-1] if path[-1] in ("self", "*") and len(path) > 1 else path
                yield whole, name or (whole if path[-1] == "self" else path)[-1]
            if token == "}":
                prefixes.pop()
            path, name = (), ""
        elif token == "as":
            name = "as"
        elif name == "as":
            name = token
        elif token != "::":
            path = (*(path or prefixes[-1]), token)


def absolute(path: Name, module: Name, scope: Mapping[str, Name]) -> Name | None:
    """From the crate's root; None for what lies outside of it."""
    if path[0] == "crate":
        return path[1:]
    if path[0] in ("self", "super"):
        while path and path[0] in ("self", "super"):
            module = module[:-1] if path[0] == "super" else module
            path = path[1:]
        return (*module, *path)
    return (*scope[path[0]], *path[1:]) if path[0] in scope else None


def longest(path: Name, modules: Mapping[Name, str]) -> Name:
    """The module that a path leads into."""
    while path not in modules:
        path = path[:-1]
    return path
