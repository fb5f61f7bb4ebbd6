"""The first of `stager` that runs: Ctrl-C ends the program without a traceback while the rest of it is still being imported.

One rule: it imports what Python has at hand anyway. Nothing was made by then, so nothing has to be cleared up.
"""

from __future__ import annotations

import gc
import os
import signal

# Exit.INTERRUPTED; the module that says so is not there yet.
INTERRUPTED = 130


def end_at_once(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


# A shell has it ignored for programs in its background.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_at_once)


def main() -> None:
    """Console script."""
    from stager.cli.main import main as program

    try:
        program()
    finally:
        # All is said and done: another must not break into Python's own end, which need not look for garbage among all that was imported.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.freeze()
