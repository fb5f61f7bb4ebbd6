"""`python -m stager.service --state-dir D`: the scheduler process. Started by clients where none runs, ends when nobody needs it.

One rule: what is imported stays for good, so no collector looks for garbage in it, neither meanwhile nor later.
"""

from __future__ import annotations

import gc
import sys


def main() -> int:
    gc.disable()
    from stager.service.command_line import main as program

    gc.freeze()
    gc.enable()
    return program()


if __name__ == "__main__":
    sys.exit(main())
