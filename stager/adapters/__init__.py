"""The outside, behind the ports: I/O nodes, origins, executors, journal, profiles.

May know: the ports and below. One rule: an adapter does what its port says and decides nothing.
"""
