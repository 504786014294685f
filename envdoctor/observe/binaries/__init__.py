"""Reading compiled files of an environment: the extensions that packages built against torch, and torch's libraries.

Nothing is loaded. Files are read in bounded pieces, never mapped: a mapped file that shrinks would kill the process.
Only files of the packages in the table torch-extensions are opened, and of torch when there is one of those: an
environment without them costs nothing. What was found is kept in envdoctor's cache, when a folder for it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.observe.environment.layout import Layout

__all__ = ["extension_fact", "libstdcxx_fact"]


def extension_fact(
    facts: Sequence[Fact], layout: Layout, table: Mapping[str, Any], *, cache: str | None = None
) -> Fact:
    """The fact ``extension`` of an environment whose other facts were observed; ``table`` is torch-extensions and
    ``cache`` the folder of envdoctor's cache (None: neither read nor written)."""
    known = {fact.key: fact.value for fact in facts}
    dists = known.get("dist")
    if not isinstance(dists, Records):
        return Fact("extension", Unknown("the installed packages are not known"), "", "environment")
    modules = {row["name"]: row["modules"] for row in table.get("package", ())}
    chosen: dict[str, Mapping[str, Value]] = {}
    for dist in dists:
        if dist.get("name") in modules:
            chosen.setdefault(str(dist["name"]), dist)
    if not chosen:
        return Fact("extension", Records((), dists.incomplete), "installed packages", "environment")
    from envdoctor.observe.binaries.extensions import read_extensions

    missing = known.get("torch.missing_files")
    return read_extensions(chosen, modules, layout, missing, dists.incomplete, cache=cache)


def libstdcxx_fact(extensions: Value, layout: Layout, environ: Mapping[str, str], *, cache: str | None = None) -> Fact:
    """The fact ``os.libstdcxx`` for an environment that runs on this machine; read only when an extension asks for a
    version of it."""
    wanted: list[str] = []
    if isinstance(extensions, Records):
        wanted = [needs for item in extensions if isinstance(needs := item.get("glibcxx_needs"), str)]
    if not wanted:
        return Fact("os.libstdcxx", Unknown("no extension asks for a version of it"), "", "machine")
    from envdoctor.observe.binaries.libstdcxx import find_libstdcxx

    return find_libstdcxx(wanted, layout, environ, cache=cache)
