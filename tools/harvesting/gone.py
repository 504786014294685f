"""The releases that no installer takes any more, because a release that they require was deleted from the index."""

from __future__ import annotations

from envdoctor.matrix import Ledger
from envdoctor.matrix.ledger_taking import PackageReleases, TakingSituation
from envdoctor.versions.wheel_tags import WheelTarget

__all__ = ["with_flags"]

_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}


def with_flags(ledger: Ledger, name: str, text: str) -> str:
    """Return the file of a package in which these releases have the flag of withdrawn ones."""
    releases = PackageReleases(ledger, TakingSituation(_LINUX, "", WheelTarget()))
    read = (release.version for release in getattr(ledger.package(name), "releases", ()) if release.metadata)
    versions = {version for version in read if releases.gone(name, version)}
    head, mark, rest = text.partition("[requires]\n")
    lines = (line + "y" * (line.partition("\t")[0] in versions and line[-1] != "y") for line in head.splitlines())
    return "".join(f"{line}\n" for line in lines) + mark + rest
