"""The words of the project as values: ids, files, workflows, topology, profiles, errors.

May know: nothing but the standard library's pure parts. One rule: values only; no clock, no randomness, no input or output, no mutable
state.
"""
