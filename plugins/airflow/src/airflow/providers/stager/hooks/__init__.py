"""Connections to a service, as hooks."""
