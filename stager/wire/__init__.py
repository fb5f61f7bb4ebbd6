"""The messages between the scheduler and its clients: the bodies of the socket API.

May know: the pure packages. One rule: secrets travel in `Credentials` only, which never shows them and is never written anywhere.
Bodies that hold whole workflows are msgspec values (100,000 jobs in well under a second); everything else is pydantic.
"""

from __future__ import annotations

from stager.wire.admin import (
    GcReport,
    GcRequest,
    Health,
    NodeDrain,
    NodeForget,
    NodeLoss,
    NodeView,
    NodeViews,
    Resumed,
    RunNeeds,
    SubmitResponse,
)
from stager.wire.body import Body, ErrorBody, ErrorResponse
from stager.wire.codec import (
    Credentials,
    ResumeRequest,
    SubmitRequest,
    builtins_of,
    decode_plan,
    decode_resume,
    decode_submit,
    decode_workflow,
    encode,
)
from stager.wire.engines import CalledFile, CallRequest, CallState, CallView, EndRequest, FileWhere, OpenCall, Place
from stager.wire.hosts import HostForget, HostList, HostView
from stager.wire.money import BudgetView
from stager.wire.past import AttemptSpan, Explanation, HostOfRun, MoveSpan, PathSpan, ProgressEvent, ProgressPage, RunHistory, RunSummary
from stager.wire.runs import (
    AttemptLog,
    FileCounts,
    ImageRoot,
    JobList,
    JobLogs,
    JobView,
    Ledger,
    LedgerEntry,
    LedgerTotals,
    Losses,
    Mount,
    RunInfo,
    RunList,
    RunningJob,
    RunStatus,
    Sandbox,
    TransferView,
    WaitingView,
    WaitResponse,
)

API_VERSION = 1
HOST = "stager"

__all__ = [
    "API_VERSION",
    "AttemptLog",
    "AttemptSpan",
    "Body",
    "BudgetView",
    "CallRequest",
    "CallState",
    "CallView",
    "CalledFile",
    "Credentials",
    "EndRequest",
    "ErrorBody",
    "ErrorResponse",
    "Explanation",
    "FileCounts",
    "FileWhere",
    "GcReport",
    "GcRequest",
    "HOST",
    "Health",
    "HostOfRun",
    "HostForget",
    "HostList",
    "HostView",
    "JobList",
    "JobLogs",
    "JobView",
    "Ledger",
    "LedgerEntry",
    "LedgerTotals",
    "Losses",
    "ImageRoot",
    "Mount",
    "MoveSpan",
    "NodeDrain",
    "NodeForget",
    "NodeLoss",
    "NodeView",
    "NodeViews",
    "OpenCall",
    "PathSpan",
    "Place",
    "ProgressEvent",
    "ProgressPage",
    "ResumeRequest",
    "Resumed",
    "RunHistory",
    "RunInfo",
    "RunList",
    "RunNeeds",
    "RunStatus",
    "RunSummary",
    "RunningJob",
    "Sandbox",
    "SubmitRequest",
    "SubmitResponse",
    "TransferView",
    "WaitResponse",
    "WaitingView",
    "builtins_of",
    "decode_plan",
    "decode_resume",
    "decode_submit",
    "decode_workflow",
    "encode",
]
