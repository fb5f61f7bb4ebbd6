"""Stager for users of Pegasus: `stager-transfer` in the place of pegasus-transfer.

May know: what Pegasus writes and expects, and of stager its client only. One rule: it works on a compute node where nothing but this
package and Python are installed, and says what it cannot do there.
"""

__version__ = "0.1.0"
