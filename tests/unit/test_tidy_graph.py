"""Which files need which: no circle of many, layers in the node; what it takes for an edge, and that the rules of tests/tidy_graph.py fire.

One rule, as in tests/test_tidy.py: no exception without a reason written beside it.
"""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests import tidy_graph
from tests.test_tidy import PLUGINS, assert_none, is_package, module_name, parsed, python_files, text_of, tracked

pytestmark = pytest.mark.xdist_group("tidy")


def crates() -> list[str]:
    return [path.removesuffix("Cargo.toml") for path in tracked() if path.startswith("ionode/") and path.endswith("/Cargo.toml")]


@cache
def rust_graph(crate: str) -> tidy_graph.Graph:
    sources = {path: text_of(path) for path in tracked() if path.startswith(f"{crate}src/") and path.endswith(".rs")}
    return tidy_graph.rust_graph(sources)


@pytest.mark.parametrize("crate", crates())
def test_no_circle_of_many_files_in_rust(crate: str) -> None:
    assert_none(tidy_graph.cycle_findings(rust_graph(crate)))


def test_layers_of_the_node() -> None:
    graph = rust_graph("ionode/node/")
    assert len(graph) > 90 and sum(len(others) for others in graph.values()) > 400, "the graph does not see the crate"
    assert_none(tidy_graph.layer_findings(graph, "ionode/node/src/", tidy_graph.NODE_LAYERS))


@pytest.mark.parametrize("place", ["stager/", *PLUGINS])
def test_no_circle_of_many_files_in_python(place: str) -> None:
    package = PLUGINS[place][0].replace(".", "/") if place in PLUGINS else ""
    files = python_files(place + package)
    top = place if place in PLUGINS else ""
    sources = {module_name(path.removeprefix(top)): parsed(path) for path in files}
    assert sources
    packages = {module_name(path.removeprefix(top)) for path in files if is_package(path)}
    assert_none(tidy_graph.cycle_findings(tidy_graph.python_graph(sources, packages)))


# Each rule must be able to fire, and must let pass what is right beside it.

CHAIN = {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"e"}, "e": {"f"}, "f": set[str]()}


def test_cycle_rule_fires() -> None:
    assert not list(tidy_graph.cycle_findings(CHAIN))
    assert not list(tidy_graph.cycle_findings(CHAIN | {"e": {"f", "a"}}))
    (finding,) = tidy_graph.cycle_findings(CHAIN | {"f": {"a", "f"}})
    assert finding.startswith("6 files") and "a, b, c, d, e, f" in finding
    # Two circles that share a file are one.
    assert [len(files) for files in tidy_graph.components(CHAIN | {"c": {"d", "a"}, "f": {"c"}})] == [6]


def test_circles_in_python_are_seen() -> None:
    sources = {
        "p": "",
        "p.a": "from p import b\nfrom p.c import f",
        "p.b": "def late():\n    from .a import f",
        "p.c": "import p.b\nimport os",
    }
    trees = {name: ast.parse(text) for name, text in sources.items()}
    assert tidy_graph.python_graph(trees, {"p"}) == {"p": set(), "p.a": {"p.b", "p.c", "p"} - {"p"}, "p.b": {"p.a"}, "p.c": {"p.b"}}


RUST = {
    "x/src/lib.rs": "mod a;\npub mod b;\npub use b::deep::Deep;\npub(crate) fn of_root() {}\n",
    "x/src/a.rs": "use crate::b::{self, deep::{Deep as D, *}};\nuse std::fs;\nfn f() { b::g(); fs::read(); }\n",
    "x/src/b/mod.rs": "mod deep;\nfn g() { deep::h(); } // crate::a\n",
    "x/src/b/deep.rs": "fn h() { super::g() }\n#[cfg(test)]\nmod tests {\n    use crate::a;\n    fn t() { crate::of_root() }\n}\n",
    "x/src/main.rs": 'mod own;\nfn main() { own::run("crate::a") }\n',
    "x/src/own.rs": "pub fn run(_: &'static str) {}\n",
}


def test_paths_in_rust_are_seen() -> None:
    """Through `use` and in the middle of code; not in comments, strings or tests, and not by a `mod` line."""
    assert tidy_graph.rust_graph(RUST) == {
        "x/src/lib.rs": set(),
        "x/src/a.rs": {"x/src/b/mod.rs", "x/src/b/deep.rs"},
        "x/src/b/mod.rs": {"x/src/b/deep.rs"},
        "x/src/b/deep.rs": {"x/src/b/mod.rs"},
        "x/src/main.rs": {"x/src/own.rs"},
        "x/src/own.rs": set(),
    }


def test_what_a_file_passes_on_is_needed_from_where_it_comes() -> None:
    graph = tidy_graph.rust_graph(RUST | {"x/src/a.rs": "use crate::Deep;\n"})
    assert graph["x/src/a.rs"] == {"x/src/b/deep.rs"} and graph["x/src/lib.rs"] == set()
    uses_it = tidy_graph.rust_graph(RUST | {"x/src/lib.rs": RUST["x/src/lib.rs"] + "fn own() -> Deep {}\n"})
    assert uses_it["x/src/lib.rs"] == {"x/src/b/deep.rs"}


def test_layer_rule_fires() -> None:
    layers = (("low", "beside"), ("high",))
    good = {"s/lib.rs": {"s/high.rs"}, "s/high.rs": {"s/low/x.rs"}, "s/low/x.rs": {"s/low/y.rs"}, "s/low/y.rs": set(), "s/beside.rs": set()}
    assert not list(tidy_graph.layer_findings(good, "s/", layers))
    for worse in ({"s/low/x.rs": {"s/high.rs"}}, {"s/beside.rs": {"s/low/y.rs"}}, {"s/new.rs": set()}):
        assert len(list(tidy_graph.layer_findings(good | worse, "s/", layers))) == 1
    assert len(list(tidy_graph.layer_findings(good, "s/", (*layers, ("gone",))))) == 1
