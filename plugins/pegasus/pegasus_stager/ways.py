"""The way by which each entry of a list is done, and which of them are done here.

May know: protocols, and what must be there for each. One rule: what is not served has a reason that can be told.
"""

from __future__ import annotations

from pegasus_stager.ending import Ending
from pegasus_stager.lists import Directory, ListEntry, Removal, Transfer
from pegasus_stager.settings import TransferSettings
from pegasus_stager.urls import Url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pegasus_stager.remote import Origins
    from pegasus_stager.transfer_agent import TransferAgent

LOCAL_PAIRS = frozenset((("file", "file"), ("file", "symlink"), ("symlink", "symlink"), ("file", "moveto")))
LOCAL_REMOVED = frozenset(("file", "symlink"))


class Ways:
    """Looks for what reaches other machines when a list first names one."""

    def __init__(self, settings: TransferSettings) -> None:
        self.settings = settings
        self.ending = Ending()
        self.origins: Origins | None = None
        self.transfer_agent: TransferAgent | None = None
        self.has_searched = False

    def against(self, entry: ListEntry) -> str:
        """Why it is not done here; empty: it is."""
        if isinstance(entry, Transfer):
            reasons = (self.against_pair(source, entry.destination) for source in entry.sources)
            return next((reason for reason in reasons if reason), "")
        if isinstance(entry, Directory):
            return "" if entry.url.protocol == "file" else self.against_remote(entry.url, "mkdir")
        if not isinstance(entry, Removal):
            raise TypeError(f"{type(entry).__name__} is no entry of a list")
        if entry.url.protocol in LOCAL_REMOVED:
            return ""
        return self.against_remote(entry.url, "recursive remove" if entry.recursive else "remove")

    def against_pair(self, source: Url, destination: Url) -> str:
        if (source.protocol, destination.protocol) in LOCAL_PAIRS:
            return ""
        if destination.protocol == "file":
            return self.against_remote(source, "read")
        if source.protocol == "file":
            return self.against_remote(destination, "write")
        return f"{source.protocol} to {destination.protocol} is not done here"

    def against_remote(self, url: Url, what: str) -> str:
        from pegasus_stager import remote

        served = {"read": remote.READ, "write": remote.WRITTEN, "mkdir": remote.SSH, "remove": remote.WRITTEN}
        if url.protocol not in served.get(what, ()):
            return f"{what} of {url.protocol} is not done here"
        if not self.has_searched:
            self.find_programs()
        if self.transfer_agent is None or self.origins is None:
            return "stager-ionode, which would do it, is not installed here (install stager beside it, or set STAGER_IONODE)"
        try:
            self.origins.of(url)
        except remote.Unserved as reason:
            return str(reason)
        return ""

    def find_programs(self) -> None:
        from pegasus_stager import remote, transfer_agent

        self.has_searched = True
        program = transfer_agent.found(self.settings.environ)
        if program is not None:
            self.transfer_agent, self.origins = transfer_agent.TransferAgent(program, self.ending), remote.Origins(self.settings)

    def ask(self, url: Url, transfer_job: str, **more: str) -> dict[str, object]:
        """`stager-ionode transfer` does it. Raises Failed."""
        if self.transfer_agent is None or self.origins is None:
            raise AssertionError(f"{url} was not checked before it is moved")
        origin, path = self.origins.of(url)
        return self.transfer_agent.ask(origin, {transfer_job: {"path": path, **more}}, str(url))

    def stop(self) -> None:
        if self.transfer_agent is not None:
            self.transfer_agent.stop()
