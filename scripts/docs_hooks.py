"""What MkDocs calls while it builds the docs site: adds pages that are made or lie outside docs/, and mends links.

May know: MkDocs, and where things lie in the repository. One rule: what is wrong with a page is a warning, so that `--strict` fails.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts import docs_pages  # noqa: E402
from stager.cli.main import stager  # noqa: E402

log = logging.getLogger("mkdocs.plugins.docs_hooks")

# Path in the repository -> page of the site.
FROM_OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changes.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "workflows/quickstart/README.md": "project/quickstart.md",
    "workflows/povray/README.md": "project/povray.md",
    "workflows/supernovae/README.md": "project/supernovae.md",
    "workflows/earthquakes/README.md": "project/earthquakes.md",
    "plugins/airflow/README.md": "project/airflow.md",
    "plugins/pegasus/README.md": "project/pegasus.md",
}
# The front page of the repository and the one of the site tell the same.
FRONT = {"README.md": "index.md"}


def generated() -> dict[str, str]:
    rest = json.loads((ROOT / "docs/formats/rest.openapi.json").read_text())
    workflow = json.loads((ROOT / "docs/formats/workflow.schema.json").read_text())
    return {
        "reference/cli.md": docs_pages.command_page(stager, "stager"),
        "reference/rest.md": docs_pages.rest_page(rest),
        "reference/workflow-keys.md": docs_pages.workflow_page(workflow),
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place, page in FROM_OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / place)))
    for page, text in generated().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    within = {f"docs/{file.src_uri}": file.src_uri for file in files if file.src_uri not in FROM_OUTSIDE.values()}
    outside = {page: place for place, page in FROM_OUTSIDE.items()}
    place = outside.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def instead(label: str, path: str) -> str:
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which is not there", place, path)
        if config.repo_url:
            return f"[{label}]({config.repo_url.rstrip('/')}/blob/HEAD/{path})"
        bare = label.strip("`")
        return f"`{path}`" if bare in (path, path.rpartition("/")[2]) else f"{label} (`{path}`)"

    return docs_pages.with_blank_lines(docs_pages.with_links(markdown, place, within | FROM_OUTSIDE | FRONT, instead))
