"""The C++ library that a process of this environment would load; read only when an extension asks for a version."""

from __future__ import annotations

from envdoctor.facts.values import Fact, Unknown
from envdoctor.observe.request import Request

__all__ = ["KEYS", "NEEDS", "observe"]

KEYS = ("os.libstdcxx",)
NEEDS = ("extension",)


def observe(request: Request) -> list[Fact]:
    """``os.libstdcxx`` of an environment that runs on this machine."""
    wanted = [needs for item in request.items("extension") if isinstance(needs := item.get("glibcxx_needs"), str)]
    if not wanted or not request.place.live:
        reason = "no extension asks for a version of it" if request.place.live else "the environment does not run here"
        return [Fact("os.libstdcxx", Unknown(reason), "", "machine")]
    from envdoctor.observe.binaries.reading.libstdcxx import find_libstdcxx

    return [find_libstdcxx(wanted, request.place, request.environ)]
