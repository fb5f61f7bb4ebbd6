"""Sensors: tasks that wait for bytes."""
