"""The command line: a file per command; parse, call, print.

May know: everything below. One rule: no decisions here. The service and the pure packages decide.
"""
