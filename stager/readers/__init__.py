"""Readers: from a file that describes a workflow to a Workflow that is valid and expanded; `sniff` tells the formats apart.

May know: the model, the OriginAccess port. One rule: all that is wrong with a file is said at once, each with its place and the fix.
"""
