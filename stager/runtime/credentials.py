"""The credentials of runs' submitters: origin configurations and variables, in memory only.

May know: the model, origin_config. One rule: nothing here is ever written or shown; what a restart forgot and cannot work out again is
asked for by `resume`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stager.model.errors import Denied, StagerError, Transient
from stager.model.workflow import Origin, Workflow

# Of a run: whose word counts for its origins depends on who submitted it.
Resolver = Callable[[str, Origin], dict[str, Any]]


class CredentialBook:
    """Ids of origins at the node are made from their whole configuration under a key of this process, or of its state directory where
    nodes outlive it.

    So equal ones are shared by runs, and new credentials get a new id.
    """

    def __init__(self, resolver: Resolver, needs_secrets: Callable[[str, Origin], bool]) -> None:
        self.resolver, self.needs_secrets = resolver, needs_secrets
        self.key = secrets.token_bytes(32)
        self.configs: dict[tuple[str, str], dict[str, Any]] = {}
        self.env: dict[str, dict[str, str]] = {}

    def bring(self, run: str, origins: Mapping[str, dict[str, Any]], env: Mapping[str, str]) -> None:
        for name, config in origins.items():
            self.configs[run, name] = config
        self.env[run] = dict(env)

    def forget(self, run: str) -> None:
        for key in [key for key in self.configs if key[0] == run]:
            del self.configs[key]
        self.env.pop(run, None)

    def has_env(self, run: str, workflow: Workflow) -> bool:
        """Whether the variables its jobs take from the submitter are known."""
        return run in self.env or not any(job.env_pass for job in workflow.jobs.values())

    def known(self, run: str, name: str) -> tuple[str, dict[str, Any]] | None:
        """(id at the node, configuration), if it was brought or worked out before."""
        config = self.configs.get((run, name))
        if config is None:
            return None
        digest = hashlib.blake2b(msgspec.json.encode(config, order="deterministic"), digest_size=16, key=self.key)
        return "o" + digest.hexdigest(), config

    def work_out(self, run: str, name: str, workflow: Workflow) -> tuple[str, dict[str, Any]]:
        """As `known`, from the workflow. Blocking where ssh settings have to be read. Raises Denied if only the submitter
        can say, Transient where it can be said later.
        """
        config = self._work_out(run, workflow.origins[name])
        self.configs.setdefault((run, name), config)
        answer = self.known(run, name)
        assert answer is not None
        return answer

    def _work_out(self, run: str, origin: Origin) -> dict[str, Any]:
        advice = f"run `stager resume {run}` where its credentials are"
        if self.needs_secrets(run, origin):
            text = f"the credentials of the origin {origin.name!r} were in the memory of a scheduler that is gone; {advice}"
            raise Denied(text, code="auth_failed", subject=origin.name)
        try:
            return self.resolver(run, origin)
        except Transient:
            # A name that is not known just now: nobody has to bring anything, it is tried again.
            raise
        except (OSError, ValueError) as problem:
            # A home on a file server that is away, or to which nobody has a ticket just now.
            text = f"the settings of the origin {origin.name!r} cannot be read: {type(problem).__name__}: {problem}"
            raise Transient(text, code="io_error", subject=origin.name) from problem
        except StagerError as problem:
            raise Denied(f"{problem.message}; or {advice}", code="auth_failed", subject=origin.name) from problem
