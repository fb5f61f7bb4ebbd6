"""`python -m stager.cli`: the same as `stager`, where the console script is not on PATH."""

from __future__ import annotations

from stager.cli.start import main

main()
