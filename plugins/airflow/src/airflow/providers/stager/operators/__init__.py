"""Operators: tasks that ask something of a service."""
