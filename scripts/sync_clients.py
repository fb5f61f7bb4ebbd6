"""Writes the HTTP clients that wait (`rest.py`, `engines.py`) from those that await (`rest_async.py`, `engines_async.py`).

    python scripts/sync_clients.py

May know: the words in which the two differ. One rule: the text stays Python that the formatter and the type checker take as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

CLIENTS = Path(__file__).resolve().parents[1] / "stager" / "client"
SOURCES = {"rest_async.py": "rest.py", "engines_async.py": "engines.py"}
# In this order: a longer word comes before its beginning.
WORDS = {
    ", for programs that run an event loop.": ", one call at a time.",
    "import asyncio\n": "import time\n",
    "asyncio.sleep(": "time.sleep(",
    "httpx.AsyncClient(": "httpx.Client(",
    "AsyncRestClient": "RestClient",
    "AsyncRestRun": "RestRun",
    "AsyncEngineRun": "EngineRun",
    "AsyncHosts": "Hosts",
    "AsyncContents": "Contents",
    "AsyncIterator": "Iterator",
    "stager.client.rest_async": "stager.client.rest",
    "stager.client.engines_async": "stager.client.engines",
    "play_async": "play",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    ".aclose(": ".close(",
    ".aread(": ".read(",
    ".aiter_lines(": ".iter_lines(",
}
NOTE = "# Written from {source} by scripts/sync_clients.py: change that one."


def without_async(text: str, source: str) -> str:
    """The same for programs that wait, with a note of where it comes from below the docstring."""
    for word, instead in WORDS.items():
        text = text.replace(word, instead)
    text = text.replace("async def ", "def ").replace("async with ", "with ").replace("async for ", "for ")
    text = without_await(text)
    text = re.sub(r"^(from \S+ import )([\w, ]+)$", lambda found: found[1] + ", ".join(sorted_names(found[2])), text, flags=re.MULTILINE)
    return text.replace('\n"""\n', f'\n"""\n\n{NOTE.format(source=source)}', 1)


def sorted_names(names: str) -> list[str]:
    """As the formatter wants imports: constants, classes, functions."""
    return sorted(names.split(", "), key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def without_await(text: str) -> str:
    """`(await x).y` becomes `x.y`, and `await x` becomes `x`."""
    while (start := text.find("(await ")) >= 0:
        end = closing(text, start)
        inside = text[start + len("(await ") : end]
        text = text[:start] + (inside if text[end + 1] == "." else f"({inside})") + text[end + 1 :]
    return text.replace("await ", "")


def closing(text: str, start: int) -> int:
    """Where the parenthesis at `start` is closed. Calls of the clients have none in their texts."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(f"a parenthesis is never closed: {text[start : start + 60]!r}")


def written(source: str) -> str:
    return without_async((CLIENTS / source).read_text(), source)


def main() -> None:
    for source, name in SOURCES.items():
        (CLIENTS / name).write_text(written(source))


if __name__ == "__main__":
    main()
