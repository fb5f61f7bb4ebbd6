"""`stager-transfer`: the command line of pegasus-transfer.

May know: all modules of this package. One rule: 0 means that everything on the list is done; nothing is started of a list that cannot be
understood, or that names what nobody here serves.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from pegasus_stager import local_files
from pegasus_stager.failures import ListRefused
from pegasus_stager.lists import ListEntry, Transfer, read_list
from pegasus_stager.log import Log
from pegasus_stager.report import Report
from pegasus_stager.rounds import run_rounds
from pegasus_stager.settings import TransferSettings, settings
from pegasus_stager.ways import Ways
from pegasus_stager.work import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

    from pegasus_stager.attached import Attached

    Child = Popen[bytes]

OK, FAILED = 0, 1
ATTEMPTS = 3
SHOWN = 5


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    # A width that is given spares argparse the import of shutil.
    parser = argparse.ArgumentParser(
        prog="stager-transfer",
        description="Does what pegasus-transfer does, without its waits.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
    )
    parser.add_argument("-f", "--file", help="the list; it is read from stdin otherwise")
    parser.add_argument("-m", "--max-attempts", type=int, default=ATTEMPTS, help="attempts for each entry (default: %(default)s)")
    parser.add_argument("-n", "--threads", type=int, default=0, help="transfers at a time (default: PEGASUS_TRANSFER_THREADS, or 8)")
    parser.add_argument("-s", "--symlink", action="store_true", help="link file URLs to file URLs instead of copying")
    parser.add_argument("-d", "--debug", action="store_true", help="say more")
    parser.add_argument("ignored", nargs="*", help=argparse.SUPPRESS)
    options, more = parser.parse_known_args(argv)
    unknown = [word for word in more[: more.index("--") if "--" in more else None] if word.startswith("-")]
    if unknown:
        parser.error(f"there is no option {unknown[0]}")
    if options.max_attempts < 1:
        parser.error(f"--max-attempts {options.max_attempts}: there must be at least one")
    if options.threads < 0:
        parser.error(f"--threads {options.threads}: write a number from 1, or 0 for the default")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    streams_there()
    options = parsed(argv)
    log = Log(options.debug)
    try:
        surroundings = settings(options.threads)
        entries = read_list(given(options.file), surroundings.environ)
        ways = Ways(surroundings)
        worker = Worker(surroundings, ways, options.symlink, Report(), log)
        call = call_of(surroundings, log)
        left = entries if call is None else call.begin(entries, worker.report, worker.checksum)
        ours, theirs, program = shared_out(left, ways, log)
    except ListRefused as problem:
        log.error(f"nothing was done: {problem}")
        return FAILED
    log.info(f"{len(entries)} transfers loaded")
    code = run(options, worker, ours, theirs, program)
    if call is not None:
        call.end(code == OK)
    return code


def streams_there() -> None:
    """The number of a stream that is closed must not become that of a file: what is said would be written into it."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def call_of(surroundings: TransferSettings, log: Log) -> Attached | None:
    """Of a job of a workflow that `stager pegasus attach` looks after."""
    if not surroundings.attached:
        return None
    from pegasus_stager.attached import Attached

    return Attached(surroundings.attached, surroundings.environ, log)


def given(file: str | None) -> str:
    """A name may be no valid text; its bytes are kept."""
    try:
        if file is None:
            if sys.stdin is None:
                raise ListRefused("there is no list: stdin is closed; give the list there, or name its file with --file")
            data = sys.stdin.buffer.read()
        else:
            with open(file, "rb") as opened:
                data = opened.read()
    except OSError as problem:
        raise ListRefused(f"cannot read the list {file or 'on stdin'}: {problem.strerror or problem}") from problem
    return data.decode(errors="surrogateescape")


def shared_out(entries: list[ListEntry], ways: Ways, log: Log) -> tuple[list[ListEntry], list[ListEntry], str]:
    """The entries that are done here, those for which pegasus-transfer is called, and its path. Without it the sources that are served here
    must do.
    """
    for entry in entries:
        if isinstance(entry, Transfer) and entry.sources[0].held:
            keep_served(entry, ways)
    reasons = [ways.against(entry) for entry in entries]
    ours = [entry for entry, reason in zip(entries, reasons) if not reason]
    theirs = [entry for entry, reason in zip(entries, reasons) if reason]
    if not theirs:
        return ours, [], ""
    from pegasus_stager import fallback

    if ways.settings.called:
        raise ListRefused(f"{fallback.NAME} leads back to stager-transfer, which does not serve {shown(theirs)}; {fallback.ADVICE}")
    program = fallback.found(ways.settings)
    why = "; ".join(sorted({reason for reason in reasons if reason})[:SHOWN])
    cut = [entry for entry in theirs if any(url.cut for url in entry.urls)]
    if program is not None and cut:
        text = f"nothing here does {shown(cut)} ({why}), and {fallback.NAME} would transfer another file: it cuts a URL at white space"
        raise ListRefused(f"{text}; write that as %XX where the server understands it, or rename the file")
    if program is not None:
        log.info(f"{len(theirs)} entries are left to {program}: {why}")
        return ours, theirs, program
    narrowed = [entry for entry in theirs if narrow(entry, ways, fallback.ADVICE, log)]
    refused = [entry for entry in theirs if entry not in narrowed]
    if refused:
        raise ListRefused(f"nothing here does {shown(refused)} ({why}), and there is no {fallback.NAME}; {fallback.ADVICE}")
    return ours + narrowed, [], ""


def keep_served(entry: Transfer, ways: Ways) -> None:
    """With a copy at hand the other sources need not all be served, but the destination must."""
    served = [source for source in entry.sources if not ways.against_pair(source, entry.destination)]
    entry.sources = served if served and served[0].held else entry.sources[1:]


def narrow(entry: ListEntry, ways: Ways, advice: str, log: Log) -> bool:
    """Whether sources are left when those are taken away that only pegasus-transfer serves."""
    if not isinstance(entry, Transfer):
        return False
    kept = [source for source in entry.sources if not ways.against_pair(source, entry.destination)]
    if kept:
        dropped = ", ".join(str(source) for source in entry.sources if source not in kept)
        log.warning(f"{dropped} will not be tried for {entry.destination}: that needs pegasus-transfer; {advice}")
        entry.sources = kept
    return bool(kept)


def shown(entries: Sequence[ListEntry]) -> str:
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return ", ".join(str(entry) for entry in entries[:SHOWN]) + more


def options_for_fallback(options: argparse.Namespace) -> list[str]:
    passed = ["-m", str(options.max_attempts)]
    passed += ["-n", str(options.threads)] if options.threads else []
    passed += ["-s"] if options.symlink else []
    return passed + (["-d"] if options.debug else [])


def run(options: argparse.Namespace, worker: Worker, ours: list[ListEntry], theirs: list[ListEntry], program: str) -> int:
    """pegasus-transfer works at the same time: it sleeps for most of it."""
    children: list[Child] = []
    surroundings, ways, report, log = worker.settings, worker.ways, worker.report, worker.log
    ways.ending.hear(lambda number: ended_by(number, children, ways))
    if theirs:
        from pegasus_stager import fallback

        with ways.ending:
            children.append(fallback.start(program, options_for_fallback(options), surroundings.environ))
        fallback.give(children[0], theirs)
    failed = run_rounds(ours, worker.do, surroundings.threads, options.max_attempts, log)
    ways.stop()
    codes = [child.wait() for child in children]
    report.published(surroundings.multipart_dir, log)
    if any(codes):
        log.error(f"{program} ended with {codes[0]}: of its {len(theirs)} entries some failed, see what it says above")
    if failed:
        log.error(f"{len(failed)} of {len(ours)} failed: {shown(failed)}. The reasons are above")
    if failed or any(codes):
        return FAILED
    log.info("All transfers completed successfully.")
    return OK


def ended_by(number: int, children: Sequence[Child], ways: Ways) -> None:
    """Nothing half-written stays, and nothing we called goes on. Ctrl+C is exit code 1 as with pegasus-transfer."""
    for child in children:
        child.terminate()
    ways.stop()
    local_files.drop_all()
    if number == signal.SIGINT:
        os._exit(FAILED)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
