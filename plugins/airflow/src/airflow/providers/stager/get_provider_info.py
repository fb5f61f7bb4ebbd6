"""The parts of this provider, as Airflow asks for them at its start. One rule: imports nothing, since every process of Airflow calls it."""

from __future__ import annotations

from typing import Any

NAME = "Stager"


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "apache-airflow-providers-stager",
        "name": NAME,
        "description": "Inputs are near before a task begins, products go home verified.",
        "integrations": [{"integration-name": NAME, "tags": ["service"]}],
        "connection-types": [connection_type()],
        "hooks": [of_integration("airflow.providers.stager.hooks.stager")],
        "operators": [of_integration("airflow.providers.stager.operators.submit", "airflow.providers.stager.operators.stage")],
        "filesystems": ["airflow.providers.stager.fs.stager"],
        "sensors": [of_integration("airflow.providers.stager.sensors.stager")],
        "triggers": [of_integration("airflow.providers.stager.triggers.stager", "airflow.providers.stager.triggers.staged")],
        "extra-links": ["airflow.providers.stager.links.stager.StagerRunLink"],
        "asset-uris": [{"schemes": ["stager"], "handler": "airflow.providers.stager.assets.stager.sanitize_uri"}],
        "task-decorators": [{"class-name": "airflow.providers.stager.decorators.stager.stager_task", "name": "stager"}],
        "config": {"stager": {"description": "How tasks stage through stager.", "options": config_options()}},
    }


def of_integration(*modules: str) -> dict[str, Any]:
    return {"integration-name": NAME, "python-modules": list(modules)}


def connection_type() -> dict[str, Any]:
    """Fields of its form, by the names of docs/operating/airflow.md."""
    text = {"type": ["string", "null"]}
    return {
        "connection-type": "stager",
        "hook-class-name": "airflow.providers.stager.hooks.stager.StagerHook",
        "hook-name": NAME,
        "ui-field-behaviour": {
            "hidden-fields": ["login"],
            "relabeling": {"host": "Service", "password": "Token", "schema": "Protocol"},
            "placeholders": {
                "host": "127.0.0.1, or a whole URL",
                "port": "7433",
                "password": "stager token create --tenant NAME --scope submit",
                "schema": "https; http for a service on this machine",
            },
        },
        "conn-fields": {
            "dashboard_url": {
                "label": "Dashboard URL",
                "schema": text,
                "description": "Where browsers reach the service, if that is another address than this.",
            },
            "deployment": {
                "label": "Deployment",
                "schema": text,
                "description": "A name for this Airflow, where two of them use the token of one tenant.",
            },
            "airflow_api_url": {
                "label": "Airflow's API",
                "schema": text,
                "description": "Its URL. With it, what the service holds for tasks that are over is given back when an event was lost.",
            },
            "airflow_api_user": {"label": "User there", "schema": text},
            "airflow_api_password": {"label": "Password there", "schema": text | {"format": "password"}},
        },
    }


def config_options() -> dict[str, Any]:
    """Of the section [stager] of airflow.cfg."""
    said = {
        "conn_id": ("The connection whose service tasks stage through.", "stager_default"),
        "fallback_dir": ("A directory that all workers see: stager:// files while the service is away. Empty: beside the DAGs folder.", ""),
        "fallback_days": ("How many days the files of a DagRun that failed stay there, for it may be cleared; 0: for ever.", "30"),
        "patience_s": ("How many seconds a task waits for a service that does not answer, before it moves its files itself.", "30"),
        "away_timeout_s": ("How many seconds a task waits for a service that is away and that it cannot do without.", "1800"),
        "wait_for_home": ("Whether a task has succeeded only when its products are at their places, verified.", "True"),
        "stage_timeout_s": ("How many seconds a task waits for its inputs before it fetches them itself.", "21600"),
    }
    return {
        name: {"description": text, "version_added": "0.1.0", "type": "string", "example": None, "default": default}
        for name, (text, default) in said.items()
    }
