"""Workflows and catalogs of Pegasus as Pegasus.api writes them: `python pegasus_samples.py DIRECTORY`, by a Python that has it.

May know: Pegasus.api. One rule: each shows what a reader or `stager pegasus catalogs` must cope with; nothing in them is ever run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from Pegasus.api import (
    OS,
    Arch,
    Container,
    Directory,
    EventType,
    File,
    FileServer,
    Job,
    Operation,
    ReplicaCatalog,
    Site,
    SiteCatalog,
    SubWorkflow,
    Transformation,
    TransformationCatalog,
    Workflow,
)

POPULATIONS = ("EAS", "GBR", "AMR", "EUR", "SAS", "AFR", "ALL")
CHROMOSOMES, PIECES, ROWS = 10, 16, 250_000


def sites() -> SiteCatalog:
    def directory(kind: object, name: str) -> Directory:
        return Directory(kind, f"/scratch/w/{name}").add_file_servers(FileServer(f"file:///scratch/w/{name}", Operation.ALL))

    local = Site("local", arch=Arch.X86_64, os_type=OS.LINUX)
    local.add_directories(directory(Directory.SHARED_SCRATCH, "scratch"), directory(Directory.LOCAL_STORAGE, "out"))
    pool = Site("condorpool", arch=Arch.X86_64, os_type=OS.LINUX).add_directories(directory(Directory.SHARED_SCRATCH, "pool"))
    pool.add_condor_profile(universe="vanilla")
    pool.add_pegasus_profile(style="condor")
    return SiteCatalog().add_sites(local, pool)


def replicas() -> ReplicaCatalog:
    source = File("f.a", size=1234567).add_metadata(creator="me")
    catalog = ReplicaCatalog().add_replica("remote", source, "https://example.org/f.a", checksum={"sha256": "0" * 64})
    return catalog.add_replica("local", source, "file:///data/f.a")


def transformations() -> TransformationCatalog:
    keg = "/usr/bin/pegasus-keg"
    transfer = Transformation("transfer", namespace="pegasus", site="local", pfn="/opt/stager/bin/stager-transfer", is_stageable=False)
    return TransformationCatalog().add_transformations(
        Transformation("preprocess", namespace="diamond", version="4.0", site="condorpool", pfn=keg, is_stageable=False),
        Transformation("findrange", site="condorpool", pfn=keg, is_stageable=True),
        Transformation("analyze", site="condorpool", pfn=keg, is_stageable=False),
        transfer,
    )


def diamond() -> Workflow:
    """With what stager does not run: a hook, a checkpoint, a workflow in a job."""
    source = File("f.a", size=1234567).add_metadata(creator="me")
    first, second, left, right, last = (File(name) for name in ("f.b1", "f.b2", "f.c1", "f.c2", "f.d"))
    pre = Job("preprocess", namespace="diamond", version="4.0", _id="pre").add_args("-i", source, "-o", first, second)
    pre.add_inputs(source).add_outputs(first, second, stage_out=False, register_replica=False)
    pre.add_pegasus_profile(runtime=60, cores=1, memory="2 GB", diskspace="1 GB")
    ranges = [
        Job("findrange", _id=name).add_args("-i", given, "-o", made).add_inputs(given).add_outputs(made)
        for name, given, made in (("fr1", first, left), ("fr2", second, right))
    ]
    analyze = Job("analyze", _id="an").add_args("-i", left, right, "-o", last).add_inputs(left, right).add_outputs(last)
    analyze.set_stdout("an.out").add_checkpoint(File("ck"))
    inner = SubWorkflow("inner.yml", _id="sub").add_args("--output-sites", "local").add_inputs(last)
    return Workflow("diamond").add_jobs(pre, *ranges, analyze, inner).add_shell_hook(EventType.END, "/bin/date")


def planned() -> Workflow:
    """One that stager runs too, with all of its catalogs: of local programs, on placeholders for places."""
    names = [File(name) for name in ("f.a", "f.b1", "f.b2", "f.c1", "f.c2", "f.d")]
    source, first, second, left, right, last = names
    programs = TransformationCatalog()
    for name in ("preprocess", "findrange", "analyze"):
        programs.add_transformations(Transformation(name, site="local", pfn="/scratch/exe.sh", is_stageable=False))
    jobs = [
        Job(name, _id=identity).add_args("1", *inputs, *outputs).add_inputs(*inputs).add_outputs(*outputs, stage_out=outputs == [last])
        for name, identity, inputs, outputs in (
            ("preprocess", "pre", [source], [first, second]),
            ("findrange", "fr1", [first], [left]),
            ("findrange", "fr2", [second], [right]),
            ("analyze", "an", [left, right], [last]),
        )
    ]
    workflow = Workflow("diamond").add_site_catalog(sites()).add_transformation_catalog(programs)
    return workflow.add_replica_catalog(ReplicaCatalog().add_replica("local", source, "file:///scratch/f.a")).add_jobs(*jobs)


def genome(directory: Path) -> None:
    """As large as workflows often are: 1000genome, on ten chromosomes in sixteen pieces each. Its catalogs bear its name."""
    workflow, places = Workflow("1000-genome"), ReplicaCatalog()
    columns, step = File("columns.txt"), ROWS // PIECES
    populations = [File(name) for name in POPULATIONS]
    places.add_replica("local", columns, "/data/data/20130502/columns.txt")
    for population in populations:
        places.add_replica("local", population, f"/data/data/populations/{population.lfn}")
    for number in range(1, CHROMOSOMES + 1):
        rows, notes = File(f"ALL.chr{number}.{ROWS}.vcf"), File(f"ALL.chr{number}.annotation.vcf")
        for file in (rows, notes):
            places.add_replica("local", file, f"/data/data/20130502/{file.lfn}")
        pieces = []
        for start in range(1, ROWS, step):
            pieces.append(File(f"chr{number}n-{start}-{start + step}.tar.gz"))
            job = Job("individuals").add_args(rows, str(number), str(start), str(start + step), str(ROWS)).add_inputs(rows, columns)
            workflow.add_jobs(job.add_outputs(pieces[-1], stage_out=False, register_replica=False))
        merged, sifted = File(f"chr{number}n.tar.gz"), File(f"sifted.SIFT.chr{number}.txt")
        merge = Job("individuals_merge").add_args(str(number), *pieces).add_inputs(*pieces)
        sift = Job("sifting").add_args(notes, str(number)).add_inputs(notes)
        for job, made in ((merge, merged), (sift, sifted)):
            workflow.add_jobs(job.add_outputs(made, stage_out=False, register_replica=False))
        for population in populations:
            for name in ("mutation_overlap", "frequency"):
                made = File(f"chr{number}-{population.lfn}-{name}.tar.gz")
                job = Job(name).add_args("-c", str(number), "-pop", population).add_inputs(merged, sifted, population, columns)
                workflow.add_jobs(job.add_outputs(made, stage_out=True, register_replica=False))
    programs = TransformationCatalog()
    for name in ("individuals", "individuals_merge", "sifting", "mutation_overlap", "frequency"):
        programs.add_transformations(Transformation(name, site="local", pfn=f"/data/bin/{name}.py", is_stageable=True))
    workflow.write(str(directory / "genome-320.yml"))
    places.write(str(directory / "genome-replicas.yml"))
    programs.write(str(directory / "genome-transformations.yml"))


def search() -> Workflow:
    """Its programs run in a container; all that they make but the last is thrown away."""
    box = Container("sra-search", Container.SINGULARITY, "docker://pegasus/sra-search:latest")
    programs = TransformationCatalog().add_containers(box)
    for name in ("bowtie2-build", "bowtie2", "fasterq-dump", "merge"):
        stageable = name != "bowtie2-build"
        site, place = ("local", f"/data/tools/{name}") if stageable else ("incontainer", f"/opt/bowtie2/{name}")
        programs.add_transformations(Transformation(name, site=site, pfn=place, is_stageable=stageable, container=box))
    workflow = Workflow("sra-search").add_shell_hook(EventType.ALL, "/data/home/share/pegasus/notification/email")
    reference, index = File("reference.fna"), [File(f"reference.{number}.bt2") for number in range(1, 5)]
    workflow.add_replica_catalog(ReplicaCatalog().add_replica("local", reference, "/data/tests/10/crassphage.fna"))
    workflow.add_transformation_catalog(programs)
    kept = {"stage_out": False, "register_replica": True}
    workflow.add_jobs(Job("bowtie2-build").add_args(reference, "reference").add_inputs(reference).add_outputs(*index, **kept))
    merge, result = Job("merge"), File("results.tar.gz")
    for name in ("SRR3152141", "SRR3152151"):
        halves, found = [File(f"{name}_{half}.fastq") for half in (1, 2)], File(f"{name}.bam")
        dump = Job("fasterq-dump").add_args("--split-files", name).add_outputs(*halves, **kept)
        workflow.add_jobs(dump, Job("bowtie2").add_args(name).add_inputs(*index, *halves).add_outputs(found, **kept))
        merge.add_inputs(found)
    return workflow.add_jobs(merge.add_args(result).add_outputs(result, stage_out=True, register_replica=True))


def main(directory: Path) -> None:
    sites().write(str(directory / "sites.yml"))
    replicas().write(str(directory / "replicas.yml"))
    transformations().write(str(directory / "transformations.yml"))
    diamond().write(str(directory / "diamond.yml"))
    whole = diamond().add_site_catalog(sites()).add_replica_catalog(replicas()).add_transformation_catalog(transformations())
    whole.write(str(directory / "diamond-allinone.yml"))
    planned().write(str(directory / "diamond-planned.yml"))
    genome(directory)
    search().write(str(directory / "sra-search.yml"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
