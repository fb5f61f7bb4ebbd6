"""The connection type, as Airflow's forms, tasks and Test button see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.providers.stager.get_provider_info import get_provider_info
from airflow.providers.stager.hooks.stager import StagerHook, server_of
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Connection

from tests.e2e.serve_rig import Service


def test_what_the_provider_brings_is_as_airflow_wants_it() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(get_provider_info())


def test_airflow_finds_the_provider_and_its_form() -> None:
    manager = ProvidersManager()
    assert manager.providers["apache-airflow-providers-stager"].version
    assert manager.hooks["stager"].hook_class_name.endswith("StagerHook")
    assert manager.field_behaviours["stager"]["relabeling"]["password"] == "Token"
    assert "extra__stager__dashboard_url" in manager.connection_form_widgets


@pytest.mark.parametrize(
    ("fields", "server"),
    [
        ({}, "http://127.0.0.1:7433"),
        ({"host": "localhost", "port": 9}, "http://localhost:9"),
        ({"host": "::1"}, "http://[::1]:7433"),
        ({"host": "lab.example.org"}, "https://lab.example.org"),
        ({"host": "lab.example.org", "port": 8443}, "https://lab.example.org:8443"),
        ({"host": "10.0.0.7", "schema": "http"}, "http://10.0.0.7:7433"),
        ({"host": "https://lab.example.org/stager/"}, "https://lab.example.org/stager"),
        ({"host": "http://lab.example.org", "port": 80}, "http://lab.example.org:80"),
    ],
)
def test_addresses(fields: dict[str, object], server: str) -> None:
    assert server_of(Connection(conn_id="c", conn_type="stager", **fields)) == server


@pytest.mark.parametrize("host", ["ftp://lab", "http://", "https://me:word@lab.example.org"])
def test_an_address_that_is_none_is_named(host: str) -> None:
    with pytest.raises(ValueError, match="connection 'c'"):
        server_of(Connection(conn_id="c", conn_type="stager", host=host))


def test_the_test_button_says_what_is_wrong(service: Service, token: str, connect) -> None:
    connect("good", service, token)
    connect("reader", service, service.token("t", "read"))
    connect("stranger", service, "stg_no-such-token")
    connect("nowhere", "http://127.0.0.1:9", "x")
    connect("empty", service, "")
    assert StagerHook("good").test_connection() == (True, f"stager answers at {service.url}, and the token may submit")
    for name, told in [
        ("reader", "scope 'read', and this needs 'submit'"),
        ("stranger", "token"),
        ("nowhere", "does not answer"),
        ("empty", "has no token"),
    ]:
        good, text = StagerHook(name).test_connection()
        assert not good and told in text, (name, text)


def test_the_command_of_the_readme(service: Service, token: str, connect) -> None:
    connect("stager_default", service, token)
    command = [Path(sys.executable).with_name("airflow"), "connections", "test", "stager_default"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert "Connection success!" in done.stdout, done.stdout + done.stderr
    assert token not in done.stdout + done.stderr


def test_a_token_is_never_shown(service: Service, token: str, connect) -> None:
    connect("good", service, token)
    address = StagerHook("good").address()
    assert token not in repr(address) and token not in address.run_page("r")


def test_a_hook_gives_both_clients(service: Service, token: str, connect) -> None:
    import asyncio

    connect("good", service, token)
    with StagerHook("good").get_conn() as client:
        assert client.runs() == []

    async def ask() -> list[object]:
        async with await StagerHook("good").get_async_conn() as client:
            return await client.runs()

    assert asyncio.run(ask()) == []
