"""The scheduler as a process: settings, state directory, composition root and the REST API.

May know: everything below. One rule: whoever holds the lock on the state directory is the scheduler; all others are its clients.
"""
