"""Stager: a workflow-aware data staging scheduler."""

__all__ = ["__version__"]

try:
    from stager._version import __version__
except ImportError:
    # A tree that nobody has installed or built.
    __version__ = "0.1.dev0"
