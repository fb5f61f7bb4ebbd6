"""The base of all other bodies, and errors. One rule: what is answered may grow, and older clients read it.

Bodies get their validators when they are first used, on whichever thread that is. Pydantic locks that from 2.14 on.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from stager.model.errors import ErrorClass, Fault


class Body(BaseModel):
    """Unknown keys of a newer scheduler are ignored by an older client."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class ErrorBody(Body):
    """The same shape as the I/O node's errors; `class` is a word of Python, so it has an alias."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, defer_build=True)

    error_class: ErrorClass = Field(validation_alias="class", serialization_alias="class")
    code: str
    message: str
    subject: str = ""

    @classmethod
    def of(cls, fault: Fault) -> ErrorBody:
        return cls(error_class=fault.error_class, code=fault.code, message=fault.message, subject=fault.subject)

    def fault(self) -> Fault:
        return Fault(self.error_class, self.code, self.message, self.subject)


class ErrorResponse(Body):
    error: ErrorBody
