#!/usr/bin/env python3
"""The split workflow of the Pegasus tutorial, its text on a lab's server: cut into four parts, lines counted in each, the counts sent back.

May know: Pegasus.api. One rule: what stager adds to a Pegasus workflow is between the two marks, and nowhere else.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from Pegasus.api import (
    OS,
    Arch,
    Directory,
    File,
    FileServer,
    Job,
    Operation,
    Properties,
    ReplicaCatalog,
    Site,
    SiteCatalog,
    Transformation,
    TransformationCatalog,
    Workflow,
)

PARTS = "abcd"


class SplitWorkflow:
    def __init__(self, place: Path, lab: str, stager_transfer: str) -> None:
        self.place, self.lab, self.stager_transfer = place, lab, stager_transfer

    def write(self) -> None:
        self.properties()
        self.site_catalog()
        self.replica_catalog()
        self.transformation_catalog()
        self.workflow()

    def properties(self) -> None:
        props = Properties()
        props["pegasus.data.configuration"] = "sharedfs"
        props["pegasus.catalog.site.file"] = "sites.yml"
        props["pegasus.catalog.replica.file"] = "replicas.yml"
        props["pegasus.catalog.transformation.file"] = "transformations.yml"
        props.write(str(self.place / "pegasus.properties"))

    def site_catalog(self) -> None:
        """Results go to the site `lab`: `pegasus-plan --output-sites lab`."""
        local = Site("local", arch=Arch.X86_64, os_type=OS.LINUX)
        for kind, name in ((Directory.SHARED_SCRATCH, "scratch"), (Directory.LOCAL_STORAGE, "storage")):
            path = self.place / name
            local.add_directories(Directory(kind, path).add_file_servers(FileServer(f"file://{path}", Operation.ALL)))
        results = Directory(Directory.SHARED_STORAGE, "/results").add_file_servers(FileServer(f"{self.lab}/results", Operation.ALL))
        lab = Site("lab", arch=Arch.X86_64, os_type=OS.LINUX).add_directories(results)
        SiteCatalog().add_sites(local, lab).write(str(self.place / "sites.yml"))

    def replica_catalog(self) -> None:
        ReplicaCatalog().add_replica("lab", "book.txt", f"{self.lab}/book.txt").write(str(self.place / "replicas.yml"))

    def transformation_catalog(self) -> None:
        catalog = TransformationCatalog()
        for name in ("split", "wc"):
            catalog.add_transformations(Transformation(name, site="local", pfn=f"/usr/bin/{name}", is_stageable=False))
        # --- stager: its transfers take the place of Pegasus's. `stager pegasus catalogs --into transformations.yml` adds the same.
        for name in ("transfer", "cleanup", "dirmanager"):
            catalog.add_transformations(
                Transformation(name, namespace="pegasus", site="local", pfn=self.stager_transfer, is_stageable=False)
            )
        # --- end of stager
        catalog.write(str(self.place / "transformations.yml"))

    def workflow(self) -> None:
        book = File("book.txt")
        parts = [File(f"part.{letter}") for letter in PARTS]
        split = Job("split", _id="split").add_args("-n", f"l/{len(PARTS)}", "-a", "1", book, "part.")
        split.add_inputs(book).add_outputs(*parts, stage_out=False)
        jobs = [split]
        for letter, part in zip(PARTS, parts):
            count = Job("wc", _id=f"wc_{letter}").add_args("-l", part)
            jobs.append(count.add_inputs(part).set_stdout(File(f"count.txt.{letter}"), stage_out=True))
        Workflow("split").add_jobs(*jobs).write(str(self.place / "workflow.yml"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the split workflow and its catalogs.")
    parser.add_argument("--lab", default="sftp://lab/home/me/split", help="where book.txt is, and results/ goes (default: %(default)s)")
    parser.add_argument("--stager-transfer", default="/opt/stager/bin/stager-transfer", help="default: %(default)s")
    parser.add_argument("--into", type=Path, default=Path(), help="directory of the files (default: here)")
    options = parser.parse_args()
    SplitWorkflow(options.into.absolute(), options.lab.rstrip("/"), options.stager_transfer).write()


if __name__ == "__main__":
    main()
