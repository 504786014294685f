"""The releases that no installer takes any more, because a release that they require was deleted from the index."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.matrix import Ledger
from envdoctor.matrix.ledger_taking import Candidate, PackageReleases, TakingSituation
from envdoctor.versions.pep440 import order
from envdoctor.versions.wheel_tags import WheelTarget

__all__ = ["gone", "with_flags"]

_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}


def gone(ledger: Ledger, name: str) -> Iterator[str]:
    """Yield the releases of a package of which a requirement, on Linux, is met by no release that the ledger lists, and
    by none that it cannot know: a newer one, a pre-release, or a build of another index."""
    releases = PackageReleases(ledger, TakingSituation(_LINUX, "", WheelTarget()))
    for release in getattr(ledger.package(name), "releases", ()):
        for need in releases.required(Candidate(name, (), release.version)) if release.metadata else ():
            pin = order(need.pin) if need.pin else None
            is_listed = pin is None or not (pin.is_pre or "+" in str(need.pin))
            if is_listed and releases.known(need) and not releases.allowed(need.name, need.specifiers):
                yield release.version
                break


def with_flags(ledger: Ledger, name: str, text: str) -> str:
    """Return the file of a package in which these releases have the flag of withdrawn ones."""
    head, _, rest = text.partition("[requires]\n")
    lines, versions = head.splitlines(), set(gone(ledger, name))
    marked = (line + "y" * (line.partition("\t")[0] in versions and line[-1] != "y") for line in lines)
    return "".join(f"{line}\n" for line in marked) + "[requires]\n" + rest
