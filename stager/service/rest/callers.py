"""The caller: a tenant by its token, and the rights of that token. One rule: the runs of others are not there (404), whatever was asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.security import HTTPBearer

from stager.adapters.run_records import RunRecord
from stager.model.errors import Denied, InvalidInput
from stager.model.tenants import Scope
from stager.service.queries import RunQueries

BEARER = HTTPBearer(auto_error=False, description="A token of `stager token create`.", scheme_name="token")


@dataclass(frozen=True, slots=True)
class Caller:
    tenant: str
    scope: Scope
    token: str
    # When the token ends, if it does.
    until: float | None = None

    @property
    def only(self) -> str | None:
        """The tenant whose runs it sees; None: all."""
        return None if self.scope is Scope.ADMIN else self.tenant

    def sees(self, tenant: str) -> bool:
        return self.scope is Scope.ADMIN or tenant == self.tenant


# The run, if the caller may see it. Raises InvalidInput (404) where it has no such run.
Own = Callable[[str, Caller], Awaitable[RunRecord]]


def caller_of(request: Request) -> Caller:
    """As the guard found it, before a byte of the body was read."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


def needs(scope: Scope) -> Callable[..., Coroutine[Any, Any, Caller]]:
    async def check(request: Request, _: Annotated[object, Security(BEARER)] = None) -> Caller:
        caller = caller_of(request)
        if not caller.scope.includes(scope):
            text = f"this token has the scope {caller.scope.value!r}, and this needs {scope.value!r}"
            raise Denied(f"{text}; use a token that has it (stager token create --scope {scope.value})", code="scope", subject=scope.value)
        return caller

    return check


async def known_query(request: Request) -> None:
    """A name that is slightly wrong would be passed over without a word, as would the first of two values of one name: the answer would
    be another than was meant. No parameter takes several values.
    """
    known = {str(field.alias) for field in get_flat_dependant(request.scope["route"].dependant).query_params}
    strange = sorted(set(request.query_params) - known)
    if strange:
        there = f"there are {', '.join(sorted(known))}" if known else "there are none here"
        raise InvalidInput(f"query: unknown parameter {strange[0]!r}; {there}", code="bad_parameter", subject=f"query.{strange[0]}")
    names = [name for name, _ in request.query_params.multi_items()]
    twice = sorted(name for name in known if names.count(name) > 1)
    if twice:
        raise InvalidInput(f"query: {twice[0]!r} is given twice; give it once", code="bad_parameter", subject=f"query.{twice[0]}")


Reader = Annotated[Caller, Depends(needs(Scope.READ))]
Submitter = Annotated[Caller, Depends(needs(Scope.SUBMIT))]
Administrator = Annotated[Caller, Depends(needs(Scope.ADMIN))]


def run_of(queries: RunQueries) -> Own:
    async def own(run: str, caller: Caller) -> RunRecord:
        """Raises InvalidInput (404) where the caller has no such run."""
        record = await queries.record(run)
        if record is None or record.removed or not caller.sees(record.tenant):
            raise InvalidInput(f"you have no run {run!r}; GET /api/v1/runs lists them", code="not_found", subject=run)
        return record

    return own
