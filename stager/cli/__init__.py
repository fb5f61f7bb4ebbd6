"""The command line: a file per command; parse, call, print.

May know: everything below. One rule: no decisions here; what a command does, the service or a pure room does.
"""
