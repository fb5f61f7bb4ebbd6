"""Links from a task to the dashboard of the service."""
