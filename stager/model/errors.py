"""Errors by who must act.

One rule: every error says what happened to which file and what to do, and belongs to exactly one class.
InvalidInput: the caller mends the input. Refused: policy or capacity says no. Transient: trying again may help. Corrupt: a check failed,
stop using it. Denied: rights or keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorClass(StrEnum):
    INVALID_INPUT = "invalid_input"
    REFUSED = "refused"
    TRANSIENT = "transient"
    CORRUPT = "corrupt"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Fault:
    """An operating error as a value: inside the core errors are events, not exceptions."""

    error_class: ErrorClass
    code: str
    message: str
    subject: str = ""


NODE_CODES_OF: dict[ErrorClass, str] = {
    ErrorClass.INVALID_INPUT: """
        api_version bad_request bucket_unknown checksum_type_wrong checksum_wrong destination_is_directory incomplete_body
        link_leads_out link_not_followed not_found object_unknown origin_unknown output_escapes outputs_missing part_order
        part_small part_wrong peer_unknown replica_unknown size_wrong too_large unsupported upload_unknown
    """,
    ErrorClass.REFUSED: """
        bucket_exists bucket_not_empty cancelled destination_exists destination_newer exceeds_reservation no_space_node
        no_space_origin precondition_failed replica_busy share_full source_changed stale_epoch stale_incarnation
        stripe_not_here ticket_closed
    """,
    ErrorClass.TRANSIENT: """
        brief_unknown busy connection_lost draining internal io_error origin_unreachable peer_unreachable replication_failed short_read
        timeout too_many_bodies unknown
    """,
    ErrorClass.CORRUPT: """
        checksum_mismatch object_corrupt origin_misbehaves output_changed peer_misbehaves store_damaged
    """,
    ErrorClass.DENIED: """
        auth_failed certificate_refused denied host_key_changed host_key_unknown not_encrypted peer_refused
        role_refused tls_required token_wrong
    """,
}
NODE_CODES = {code: error_class for error_class, codes in NODE_CODES_OF.items() for code in codes.split()}
"""What I/O nodes call their errors: the table of docs/formats/ionode-api.md, which is also that of ionode/core/src/error.rs."""
STAYS_REFUSED = frozenset({"destination_exists", "destination_newer", "no_space_origin", "source_changed"})
"""Of what is refused: what somebody has to change something for at an origin."""
PERMANENT_CODES = STAYS_REFUSED | {code for code, of in NODE_CODES.items() if of in (ErrorClass.DENIED, ErrorClass.INVALID_INPUT)}
"""Trying the same thing again cannot help."""


UNREACHABLE_CODES = frozenset({"origin_unreachable", "connection_lost", "timeout"})
"""Of a transfer that failed because its origin could not be asked: nobody said no, and it mostly comes back by itself, but no number of
tries says when. So time is what is counted.
"""
ORIGIN_CODES = frozenset({"origin_unreachable", "auth_failed", "host_key_unknown", "host_key_changed"})
"""Of an origin as a whole: whatever is asked of it fails so."""
AWAY_CODE = "origin_away"
"""Of the fault that ends such waiting."""
STATE_DIR_GONE_CODE = "state_dir_gone"
"""Of a scheduler whose state directory was removed while it ran."""
SANDBOX_FULL_CODE = "sandbox_full"
"""Of an attempt whose outputs outgrew what was reserved for them until there was no space left where its sandbox is."""
NEWER_CODE = "destination_newer"
"""Of an upload that found at its destination what was changed after the content to be uploaded was made."""
NO_NODE_CODE = "no_node"
"""Of what no I/O node is left for: a job, or a file that comes and goes by one that reaches the workflow's directory."""
UNKNOWN_CODE = "replica_unknown"
"""Of a node that does not hold, or not soundly, what it was asked to read."""

NOT_READY_CODE = "not_ready"
"""Of a service that has just begun, or whose I/O node does not answer: `/readyz` says when it takes runs."""
NO_REASON_CODE = "no_reason"
"""Of an answer that says nothing but that the service is not there: somebody between here and there gave it."""
SERVICE_AWAY_CODES = frozenset({"connection_lost", "draining", NOT_READY_CODE, NO_REASON_CODE})
"""Of what a client could not ask: the service comes back by itself. Any other answer is the service's own, and so is what it says of
origins that it cannot reach.
"""

CANNOT_MOUNT_CODE = "cannot_mount"
"""Of an origin that answers and yet cannot be mounted on a node, so that nothing can be read directly there."""


def is_unreachable(fault: Fault) -> bool:
    return fault.code in UNREACHABLE_CODES


def is_permanent(fault: Fault) -> bool:
    """True when trying the same thing again cannot help (docs/formats/ionode-api.md)."""
    return fault.code in PERMANENT_CODES or fault.error_class in (ErrorClass.DENIED, ErrorClass.INVALID_INPUT)


class StagerError(Exception):
    """Base of all errors that a user may see; raised at the edges only."""

    error_class = ErrorClass.TRANSIENT

    def __init__(self, message: str, *, code: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.details: dict[str, object] = {}
        self.message, self.code, self.subject = message, code or self.error_class.value, subject

    def fault(self) -> Fault:
        return Fault(self.error_class, self.code, self.message, self.subject)


class InvalidInput(StagerError):
    error_class = ErrorClass.INVALID_INPUT


class Refused(StagerError):
    error_class = ErrorClass.REFUSED


class Transient(StagerError):
    error_class = ErrorClass.TRANSIENT


class Corrupt(StagerError):
    error_class = ErrorClass.CORRUPT


class Denied(StagerError):
    error_class = ErrorClass.DENIED


BY_CLASS: dict[ErrorClass, type[StagerError]] = {kind.error_class: kind for kind in (InvalidInput, Refused, Transient, Corrupt, Denied)}


def error_from(fault: Fault) -> StagerError:
    """The exception that carries this fault over an edge."""
    return BY_CLASS[fault.error_class](fault.message, code=fault.code, subject=fault.subject)
