"""Real servers and real trouble for tests and benchmarks: an ssh server, an S3 server, a bad link, a tiny disk, an I/O node.

May know: the programs on this machine, docs/formats/. One rule: each piece is a context manager with its own directory and its own port,
and leaves nothing behind when it ends. tests/conftest.py makes fixtures of them.
"""
