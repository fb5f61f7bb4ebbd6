"""Stager for users of Apache Airflow. get_provider_info.py lists its parts.

May know: Airflow's SDK, stager's client. One rule: while a DAG is parsed nothing of stager is imported but its
errors; clients come when something is asked of them.
"""

__version__ = "0.1.0"
