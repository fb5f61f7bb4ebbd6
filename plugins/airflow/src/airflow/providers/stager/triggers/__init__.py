"""Triggers: what waits for a service without a worker slot."""
