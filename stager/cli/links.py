"""The ways to origins as people read them: rates and waits, each with what it rests on. One rule: what was assumed says so."""

from __future__ import annotations

from collections.abc import Sequence

from stager.model.units import format_duration, format_size
from stager.planning.plan import Basis, LinkPlan

WORDS = {Basis.MEASURED: "measured", Basis.DECLARED: "declared", Basis.DEFAULT: "assumed", Basis.PROFILE: "measured"}


def link_lines(links: Sequence[LinkPlan]) -> list[str]:
    """One for each origin: `lab: fetches 12 MB/s (measured), uploads 50 MB/s (assumed), 50 ms before the first byte (assumed),
    for each file 4 ms to upload (measured)`.
    """
    return [f"{link.origin}: {words_of(link)}" for link in links]


def words_of(link: LinkPlan) -> str:
    fetch, upload = f"{format_size(link.fetch_bytes_per_s)}/s", f"{format_size(link.upload_bytes_per_s)}/s"
    before = f"{link.latency_s * 1000:.0f} ms before the first byte ({WORDS[link.latency_basis]})"
    if link.login_s:
        before += f", {short(link.login_s)} to log in (measured)"
    if link.dispatch_s:
        before += f", {short(link.dispatch_s)} until it is begun (measured)"
    if link.upload_latency_s is not None:
        before += f", {link.upload_latency_s * 1000:.0f} ms of an upload (measured)"
    if link.reads_back:
        before += ", uploads read back (measured)"
    return f"fetches {fetch} ({WORDS[link.fetch_basis]}), uploads {upload} ({WORDS[link.upload_basis]}), {before}, {file_words(link)}"


def file_words(link: LinkPlan) -> str:
    """The cost of each file beside its bytes, where it is known or declared for either direction."""
    costs = (("fetch", link.fetch_file_s, link.fetch_file_basis), ("upload", link.upload_file_s, link.upload_file_basis))
    known = [f"{short(seconds)} to {verb} ({WORDS[basis]})" for verb, seconds, basis in costs if seconds is not None]
    return f"for each file {', '.join(known)}" if known else f"nothing more for each file ({WORDS[link.upload_file_basis]})"


def short(seconds: float) -> str:
    """Costs are small, and there may be thousands of them."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else format_duration(seconds)


def assumed_rates(links: Sequence[LinkPlan]) -> list[str]:
    """Origins of which a rate is assumed."""
    return [link.origin for link in links if Basis.DEFAULT in (link.fetch_basis, link.upload_basis)]
