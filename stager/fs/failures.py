"""Errors of objects, in the words that Python has for files.

May know: obstore's errors. One rule: who asks for a file that is not there gets a FileNotFoundError, whatever was in between.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

# Codes of the S3 endpoint (docs/formats/s3-endpoint.md).
FULL, DAMAGED, NO_BUCKET = "InsufficientStorage", "ObjectCorrupt", "<Code>NoSuchBucket</Code>"
NO_KEY = "<Code>InvalidAccessKeyId</Code>"
NO_RANGE = "<Code>InvalidRange</Code>"
# Of obstore, in what it says of the cause.
UNREACHED, BROKEN, UNSENT = "kind: Connect", "error sending request", "connection was not ready"


NAME_WRONG = "<Code>InvalidBucketName</Code>"
NAME_BYTES_MAX = 1024
NO_NAME = "no name of an object here; names have no empty parts, no . and no .., and no control characters"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Unreachable(OSError):
    """Nobody answered."""


class Broken(OSError):
    """The connection broke before there was an answer."""


class Unsent(Broken):
    """Before anything was asked: the node ended just after it had taken the connection."""


class KeyGone(PermissionError):
    """The key was taken back; the service may give another one."""


class BehindTheEnd(OSError):
    """No byte of the range is there."""


def is_name(key: str) -> bool:
    return not CONTROL.search(key) and {"", ".", ".."}.isdisjoint(key.split("/"))


def refuse_name(path: str, key: str) -> None:
    if not is_name(key):
        raise ValueError(f"stager://{path}: {NO_NAME}")
    if len(key.encode()) > NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, f"the name has more than {NAME_BYTES_MAX} bytes", f"stager://{path}")


def key_gone(shown: str) -> KeyGone:
    return KeyGone(errno.EACCES, "the token is revoked, or the service does not know its tenant", shown)


def unreached(shown: str) -> Unreachable:
    return Unreachable(errno.EHOSTUNREACH, "the I/O node of the service does not answer; is `stager serve` running there?", shown)


@contextmanager
def as_of_files(path: str) -> Iterator[None]:
    shown = f"stager://{path}"
    try:
        yield
    except (NotFoundError, FileNotFoundError) as problem:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", shown) from problem
    except AlreadyExistsError as problem:
        raise FileExistsError(errno.EEXIST, "the object is there already", shown) from problem
    except (PermissionDeniedError, UnauthenticatedError) as problem:
        if NO_KEY in str(problem):
            raise key_gone(shown) from problem
        text = "the service's token allows no such thing; one with the scope submit may write"
        raise PermissionError(errno.EACCES, text, shown) from problem
    except PreconditionError as problem:
        raise OSError(errno.ESTALE, "the object was written anew while it was read; open it again", shown) from problem
    except InvalidPathError as problem:
        raise ValueError(f"{shown}: {NO_NAME}") from problem
    except BaseError as problem:
        if NO_BUCKET in str(problem) or NAME_WRONG in str(problem):
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", shown) from problem
        raise found(str(problem), shown) from problem
    except OSError as problem:
        # Writers of obstore raise it without a number; what has a class of its own has said all there is.
        if problem.errno or type(problem) is not OSError:
            raise
        raise found(str(problem), shown) from problem


def found(said: str, shown: str) -> OSError:
    if FULL in said:
        return OSError(errno.ENOSPC, "the space for objects is full; delete some, or have it served with a larger --storage", shown)
    if DAMAGED in said:
        return OSError(errno.EIO, "the object is damaged on the I/O node's disk; write it again, or delete it", shown)
    if NO_RANGE in said:
        return BehindTheEnd(errno.EINVAL, "the range is behind the end of the object", shown)
    if UNREACHED in said:
        return unreached(shown)
    if BROKEN in said:
        # It answers a body that it cannot take before it has read it, and who still sends may not see the answer.
        text = "the connection broke; where it does so again, the I/O node has no room for what is sent"
        return (Unsent if UNSENT in said else Broken)(errno.EIO, text, shown)
    return OSError(errno.EIO, said.splitlines()[0][:500], shown)
