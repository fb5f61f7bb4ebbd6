"""Files of this machine: copied, linked or moved to where a list wants them.

May know: the file system. One rule: a final name holds the old content or all of the new, never a part; what could not be finished is taken
away under its temporary name.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import sys
from collections.abc import Callable

from pegasus_stager.bytes_by_kernel import copy_bytes
from pegasus_stager.failures import Failed, failed

NAME_BYTES = 200
COUNT = itertools.count(1)
# Temporary names in use, for the one who must end this process.
UNFINISHED: set[str] = set()
UMASK = os.umask(0o077)
os.umask(UMASK)


def parent_made(path: str) -> None:
    parent = os.path.dirname(path)
    if not parent:
        return
    try:
        os.makedirs(parent, 0o755, exist_ok=True)
    except OSError as problem:
        raise failed(f"cannot make the directory {parent} for {path}", problem) from problem


def readable(path: str) -> os.stat_result:
    """The source, looked at. A directory or a pipe is none: its copy would have no end, or not the content."""
    try:
        seen = os.stat(path)
        if stat.S_ISREG(seen.st_mode):
            os.close(os.open(path, os.O_RDONLY))
            return seen
    except OSError as problem:
        raise failed(f"cannot read the source {path}", problem) from problem
    what = "a directory" if stat.S_ISDIR(seen.st_mode) else "no regular file"
    raise Failed(f"the source {path} is {what}; only files are transferred", lasting=True)


def place_of(source: str, target: str) -> str:
    """Where the content goes: into a directory under the name of the source, and where a link leads, as with cp."""
    if os.path.isdir(target):
        return os.path.join(target, os.path.basename(source))
    if target.endswith("/"):
        raise Failed(f"the destination {target} is no directory", lasting=True)
    return target


def same_file(source: str, target: str) -> bool:
    """By device and inode: an inode's number alone says nothing, another file system may have it too."""
    try:
        return os.path.samestat(os.stat(source), os.stat(target))
    except OSError:
        return False


def copy_file(source: str, target: str) -> None:
    readable(source)
    target, old = destination_of(source, target)
    try:
        from_fd = os.open(source, os.O_RDONLY)
    except OSError as problem:
        raise failed(f"cannot read the source {source}", problem) from problem
    try:
        published(target, old, lambda unfinished: copied(from_fd, source, unfinished))
    except OSError as problem:
        raise failed(f"cannot copy {source} to {target}", problem) from problem
    finally:
        os.close(from_fd)


def take_file(source: str, target: str) -> None:
    """A copy that is ours: renamed, with the mode of a new file; between two file systems copied."""
    seen = readable(source)
    place, old = destination_of(source, target)
    mode = (0o777 if seen.st_mode & 0o100 else 0o666) & ~UMASK

    def take(unfinished: str) -> None:
        os.rename(source, unfinished)
        os.chmod(unfinished, mode)

    try:
        published(place, old, take)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise failed(f"cannot take {source} to {target}", problem) from problem
        os.chmod(source, mode)
        copy_file(source, target)


def bring_file(source: str, target: str, bring: Callable[[str], None]) -> str:
    """`bring` makes the file of the name it is given, from elsewhere. Returns where it is in the end."""
    target, old = destination_of(source, target)
    try:
        published(target, old, bring)
    except OSError as problem:
        raise failed(f"cannot make {target}", problem) from problem
    return target


def destination_of(source: str, target: str) -> tuple[str, os.stat_result | None]:
    """The name to be given, and what has it now."""
    target = place_of(source, target)
    if os.path.islink(target):
        if is_replaced_itself(target):
            return target, None
        target = os.path.realpath(target)
        if not os.path.exists(target):
            raise Failed(f"the destination is a link that leads to {target}, which is not there; remove the link", lasting=True)
    old = existing(target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise Failed(f"the destination {target} is there and no regular file; it is left as it is", lasting=True)
    return target, old


def is_replaced_itself(link: str) -> bool:
    """As by `cp -f`: it leads in a circle, or to a file that we may not write to."""
    try:
        seen = os.stat(link)
    except OSError as problem:
        return problem.errno == errno.ELOOP
    return stat.S_ISREG(seen.st_mode) and not os.access(link, os.W_OK)


def existing(target: str) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise failed(f"cannot look at the destination {target}", problem) from problem


def published(target: str, old: os.stat_result | None, make: Callable[[str], None]) -> None:
    """Made under another name, then renamed. It keeps the mode of what it replaces, where that could be written to, as with cp."""
    unfinished = temporary(target)
    try:
        make(unfinished)
        if old is not None and os.access(target, os.W_OK):
            os.chmod(unfinished, stat.S_IMODE(old.st_mode) & 0o777)
        os.rename(unfinished, target)
    except BaseException:
        dropped(unfinished)
        raise
    UNFINISHED.discard(unfinished)


def copied(from_fd: int, source: str, unfinished: str) -> None:
    """With the mode of the source, without what the umask takes."""
    before = os.fstat(from_fd)
    to_fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, before.st_mode & 0o777)
    try:
        size_bytes = copy_bytes(from_fd, to_fd)
        after = os.fstat(from_fd)
    finally:
        os.close(to_fd)
    # A file that the kernel makes has a content and no size.
    whole = size_bytes == after.st_size or (after.st_size == 0 and size_bytes > 0)
    if not whole or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Failed(f"the source {source} changed while it was copied; nothing was put at its destination")


def temporary(target: str) -> str:
    """Beside the target, on the same file system. The name says whose it is."""
    parent, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:NAME_BYTES])
    path = os.path.join(parent, f".{short}.{os.getpid()}-{next(COUNT)}.stager")
    UNFINISHED.add(path)
    return path


def dropped(unfinished: str) -> None:
    try:
        os.unlink(unfinished)
    except FileNotFoundError:
        pass
    UNFINISHED.discard(unfinished)


def drop_all() -> None:
    for path in sorted(UNFINISHED):
        try:
            dropped(path)
        except OSError:
            continue


def link_file(source: str, target: str) -> None:
    """A symbolic link with the text of the list, unless that would not lead to the source from where the link stands."""
    target = place_of(source, target)
    if not os.path.isabs(source) and os.path.realpath(os.path.dirname(target) or ".") != os.getcwd():
        source = os.path.abspath(source)
    unfinished = temporary(target)
    try:
        os.symlink(source, unfinished)
        os.rename(unfinished, target)
    except OSError as problem:
        dropped(unfinished)
        raise failed(f"cannot link {target} to {source}", problem) from problem
    UNFINISHED.discard(unfinished)


def move_file(source: str, target: str) -> None:
    """Renamed; between two file systems copied whole, then removed."""
    if not os.path.exists(source):
        raise Failed(f"cannot move {source}: it is not there")
    target = place_of(source, target)
    if same_file(source, target) and not os.path.islink(target):
        raise Failed(f"cannot move {source} to {target}: both are names of the same file", lasting=True)
    try:
        os.rename(source, target)
    except OSError as problem:
        if problem.errno != errno.EXDEV or os.path.isdir(source):
            raise failed(f"cannot move {source} to {target}", problem) from problem
        copy_file(source, target)
        os.unlink(source)


def make_directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as problem:
        raise failed(f"cannot make the directory {path or repr(path)}", problem) from problem


def remove(path: str, recursive: bool) -> None:
    """A file that is missing counts as removed. A link is removed itself, whatever it leads to."""
    bare = path.rstrip("/")
    if os.path.basename(bare) in ("", ".", ".."):
        raise Failed(f"{path!r} is not removed: it names the root, or a directory by . or ..; name what is to go", lasting=True)
    try:
        seen = os.lstat(bare)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as problem:
        raise failed(f"cannot look at {path} to remove it", problem) from problem
    directory = stat.S_ISDIR(seen.st_mode)
    if not directory and bare != path:
        raise Failed(f"{path} is not removed: it ends with / and is no directory", lasting=True)
    if directory and not recursive:
        raise Failed(f"{path} is not removed: it is a directory and the list does not say recursive", lasting=True)
    try:
        if directory:
            remove_tree(bare)
        else:
            os.unlink(bare)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise failed(f"cannot remove {problem.filename or path}", problem) from problem


def remove_tree(path: str) -> None:
    """By file descriptors: no link below it is ever followed, whoever puts one there meanwhile. As with rm, all goes that can: what
    another has removed is removed, what cannot be removed keeps nothing else, and a directory that cannot be read may be empty. Raises
    OSError of the first that stays.
    """
    import shutil

    if not shutil.rmtree.avoids_symlink_attacks:
        raise Failed(f"{path} is not removed: this system cannot do it without following links", lasting=True)
    stayed: list[OSError] = []

    def note(_: object, name: str, problem: object) -> None:
        found = problem[1] if isinstance(problem, tuple) else problem
        if isinstance(found, FileNotFoundError) or not isinstance(found, OSError) or removed_if_empty(name):
            return
        found.filename = name
        stayed.append(found)

    # Its older name of the same goes away.
    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=note)
    else:
        shutil.rmtree(path, onerror=note)
    if stayed:
        raise stayed[0]


def removed_if_empty(path: str) -> bool:
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True
