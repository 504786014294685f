"""What stops the imports that people begin with: what one installed package takes and another does not have; and what
stops the classes that they import. And what packages require, directly or not, of what is installed.

A bounded child follows the imports through the syntax trees of the installed files (``followed.py``); nothing
of the environment is imported.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.matrix.entry_statements import EntryStatement, entries
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.asking import ChildProblem, Limits, ask_once
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import release_of
from envdoctor.versions.requirement import normalise

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def required(item: Mapping[str, Value]) -> Iterator[str]:
    """Yield the names of what an item of ``dist`` requires, under any condition."""
    requires = item.get("requires")
    for line in requires if isinstance(requires, tuple) else ():
        match = _NAME.match(line)
        if match:
            yield normalise(match[0])


def needed(installed: Mapping[str, Mapping[str, Value]], names: Iterable[str]) -> list[str]:
    """Return the ``names`` that are ``installed`` (items of ``dist`` by name), and what they require of it."""
    packages = [name for name in names if name in installed]
    seen = set(packages)
    for name in packages:  # it grows
        for other in required(installed[name]):
            if other in installed and other not in seen:
                seen.add(other)
                packages.append(other)
    return packages


CHILD = "envdoctor.observe.packages.followed:answer"
LIMITS = Limits(seconds=60.0, mib=1536, output=8 << 20, patience=5.0)
_SHOWN = 3
_OF_CLASSES = ("keyword", "override")


@observes("environment", "link link_read link_unread link_imported", kept=True)
def link(request: Request) -> Found:
    """Return ``link``, one item for each thing that stops imports or classes; ``link_read``, the packages whose imports
    were followed; ``link_unread``, what could not be read on the way; ``link_imported``, the packages without which
    these imports fail.

    All are empty where no package of the table entry-statements has its code in the environment.
    """
    dists = request.value("dist")
    if not isinstance(dists, Records):
        return _facts(*(Unknown(Message("the installed packages are not known")),) * 4)
    # What importlib.metadata says, by which code compares.
    columns = [(item, key) for item in dists if item.get("active") is not False for key in ("said", "version")]
    versions = {str(item["name"]): str(item[key]) for item, key in reversed(columns) if isinstance(item.get(key), str)}
    listed = {name for folder in request.place.site_packages for name in request.place.files.names_or_none(folder)}
    tops = [(entry, entry.module.partition(".")[0]) for entry in entries(request.rows, versions)]
    wanted = [entry for entry, top in tops if top in listed or f"{top}.py" in listed]
    if not wanted:
        return _facts(Records(()), Records(()), Records(()), ())
    owners = {row["module"]: row["name"] for row in request.rows("module-distributions")}
    task = question(request, wanted, versions, owners, dists)
    place = request.place
    answer = ask_once(CHILD, task, LIMITS, looks=place.files.looks)
    if isinstance(answer, ChildProblem):
        reason = Message("the imports of the installed packages were not followed: {}", answer.said())
        return _facts(*(Records((), reason),) * 3, Unknown(reason))
    read_packages = [
        {"package": name, "version": versions[name]} for name in sorted({entry.package for entry in wanted})
    ]
    links = tuple(_record(stop, stopped, versions, owners) for stop, stopped in _together(answer["stops"]))
    python = request.value("python.minor")
    release = release_of(python) if isinstance(python, str) else None
    knows_syntax = release is not None and release[:2] <= sys.version_info[:2]
    fatal = ("always", "here") if knows_syntax else ("always",)
    unread: list[Mapping[str, Value]] = []
    for path, reason, fails in answer["unread"]:
        folder = next(item for item in place.site_packages if path.startswith(item + os.sep))
        package = _owner(os.path.relpath(path, folder).partition(os.sep)[0], owners)
        unread.append({"package": package, "file": path, "reason": reason, "damaged": fails in fatal})
    needs = tuple(sorted({_owner(module, owners) for module in answer["needed"]} & versions.keys()))
    return _facts(
        Records(links, answer["why"]), Records(tuple(read_packages), dists.incomplete), Records(tuple(unread)), needs
    )


def _facts(*values: Value) -> Found:
    return [(key, value, Message("installed files")) for key, value in zip(link.keys, values, strict=True)]


def _together(stops: Sequence[tuple[Mapping[str, Any], list[str]]]) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    """Yield each thing that a package asks for once, with all that it stops; from where most depends on it."""
    groups: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for stop, stopped in sorted(stops, key=lambda pair: not pair[0]["always"]):
        top = str(stop["consumer"]).partition(".")[0]
        kind = "name" if stop["kind"] in ("module", "attribute") else stop["kind"]
        key = (top, kind, ".".join(filter(None, (stop["module"], stop["name"]))), stop["keyword"])
        first.setdefault(key, stop)
        groups.setdefault(key, []).extend(stopped)
    return ((first[key], list(dict.fromkeys(stopped))) for key, stopped in groups.items())


def question(
    request: Request,
    entries: Sequence[EntryStatement],
    versions: Mapping[str, str],
    owners: Mapping[str, str],
    dists: Records,
) -> dict[str, Any]:
    """Return what the child that follows imports (``CHILD``) is told, as JSON holds it."""
    place = request.place
    followed = {entry.module.partition(".")[0] for entry in entries}
    # Of what would be imported only packages whose wheels fit everywhere: nothing compiled holds their names.
    pure = (item for item in dists if item.get("kind") == "dist-info" and not item.get("tags"))
    active = {str(item["name"]): item for item in pure if item.get("active") is not False}
    for name in needed(active, [entry.package for entry in entries]):
        followed |= {module for module, owner in owners.items() if owner == name} or {name.replace("-", "_")}
    return {
        "folders": list(place.site_packages),
        "root": place.files.root,
        "python": place.python_version if isinstance(place.python_version, str) else None,
        "platform": "linux" if place.kind == "root" else request.platform,
        "versions": dict(versions),
        "owners": dict(owners),
        "complete": dists.incomplete is None and place.incomplete is None and not place.has_finder,
        "followed": sorted(followed),
        "entries": [[entry.statement, entry.module, entry.name, entry.derives] for entry in entries],
    }


def _owner(module: str, owners: Mapping[str, str]) -> str:
    """Return the distribution that a module belongs to."""
    top = module.partition(".")[0]
    return owners.get(top) or normalise(top)


def _record(
    stop: Mapping[str, Any], stopped: Sequence[str], versions: Mapping[str, str], owners: Mapping[str, str]
) -> dict[str, Value]:
    """Return a stop as an item of ``link``."""
    consumer, provider = _owner(stop["consumer"], owners), _owner(stop["module"], owners)
    bound: Value = ABSENT
    if stop["kind"] == "demand":
        from envdoctor.versions.requirement import read_requirement

        requirement = read_requirement(stop["text"])
        provider, bound = requirement.name, requirement.specifiers or ABSENT
    name = ".".join(filter(None, (stop["module"], stop["name"])))
    return {
        "consumer": consumer,
        "consumer_version": versions.get(consumer, ABSENT),
        "provider": provider,
        "provider_version": versions.get(provider, ABSENT),
        "kind": stop["kind"],
        "name": name if stop["kind"] != "demand" else stop["text"],
        "module": stop["module"],
        "wanted": bound,
        "place": f"{stop['consumer'].replace('.', '/')}:{stop['line']}" if stop["line"] else stop["consumer"],
        "stops": ", ".join(stopped[:_SHOWN]) + (f", … +{len(stopped) - _SHOWN}" if len(stopped) > _SHOWN else ""),
        "text": stop["text"] or ABSENT,
        "keyword": stop["keyword"] or ABSENT,
        "parameters": tuple(stop["parameters"]) if stop["kind"] == "override" else ABSENT,
        "reach": ("always" if stop["always"] else "sometimes") if stop["kind"] in _OF_CLASSES else ABSENT,
    }
