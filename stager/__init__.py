"""Stager: a workflow-aware data staging scheduler."""

__version__ = "0.1.0"
