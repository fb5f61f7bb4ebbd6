"""Functions as tasks."""
