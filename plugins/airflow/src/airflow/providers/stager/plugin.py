"""The plugin that Airflow loads into each of its processes. One rule: it serves nothing over the network."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.stager import macros
from airflow.providers.stager.listener import StagerListener


class StagerPlugin(AirflowPlugin):
    name = "stager"
    macros: ClassVar[list[Any]] = [macros.input, macros.output]
    listeners: ClassVar[list[Any]] = [StagerListener()]
