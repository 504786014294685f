"""What `envdoctor check` says about a case beside what the real imports said.

A failed statement is *named* when an error of the report names what the import stopped at (the name, module or
attribute in the exception or one of its causes), or both packages between which it stopped, or, where the exception
names nothing, the package that it came from. An error about a statement that works is a *false* one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from import_cases import installed_in, requirements_of
from packaging.utils import canonicalize_name

_NAMED = (
    re.compile(r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'"),
    re.compile(r"No module named '?(?P<module>[\w.]+)'?"),
    re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"unexpected keyword argument '(?P<name>\w+)'"),
    re.compile(r"(?P<module>[\w-]+)[<>=!~][^ ]* is required"),
)


class Miss(NamedTuple):
    """A failed statement that no error names, with the last line of the exception and its place."""

    statement: str
    error: str
    place: str


class Verdict(NamedTuple):
    """The outcome of a case: statements ``tried``, those that ``failed``, of these the ``named`` with the ids of the
    findings, the ``misses``; ``false`` are errors about statements that work, ``beside`` the ids of errors that name no
    statement where all of them work."""

    tried: int
    failed: int
    named: Mapping[str, list[str]]
    misses: list[Miss]
    false: list[str]
    beside: list[str]


def versions_alone(site: Path, pins: Mapping[str, str], facts: Path) -> None:
    """Write a facts file with the versions of a folder, and others in their places."""
    there = {name: version for name, (version, _) in requirements_of(site).items()}
    versions = {f"pkg.{name}": version for name, version in {**there, **pins}.items()}
    machine = {"python.version": "3.11.7", "os.platform": "linux", "os.arch": "x86_64"}
    document = {"schema": "envdoctor.facts/1", "facts": {**versions, **machine}, "complete": ["pkg"]}
    facts.write_text(json.dumps(document))


def verdict(results: Mapping[str, Any], report: Any, owners: Mapping[str, str]) -> Verdict:
    """Compare. ``owners`` are the distributions by top-level module."""
    errors = [found for found in report["findings"] if is_error(found)]
    failed = {statement: found for statement, found in results.items() if found}
    named, misses = {}, []
    for statement, found in failed.items():
        ids = sorted({error["id"] for error in errors if names(error, found, owners)})
        if ids:
            named[statement] = ids
        else:
            last = found["errors"][-1]
            misses.append(Miss(statement, f"{last['type']}: {last['message']}", last["place"]))
    working = [statement for statement in results if statement not in failed]
    false = [
        f"{error['id']}: {error['message']} [{statement}]"
        for error in errors
        for statement in working
        if statement in stops(error)
    ]
    beside = [] if failed else [f"{error['id']}: {error['message']}" for error in errors if not stops(error)]
    return Verdict(len(results), len(failed), named, misses, false, beside)


def is_error(finding: Mapping[str, Any]) -> bool:
    """Whether a finding is shown as an error."""
    return finding["severity"] == "error" and "superseded_by" not in finding and "ignored" not in finding


def stops(finding: Mapping[str, Any]) -> set[str]:
    """The statements that a finding says to fail, each a whole one."""
    said = json.dumps(finding.get("item", {})) + finding.get("why", "")
    return {match[0] for match in re.finditer(r"from [\w.]+ import \w+|(?<![\w.] )import [\w.]+\w", said)}


def names(finding: Mapping[str, Any], found: Mapping[str, Any], owners: Mapping[str, str]) -> bool:
    """Whether the finding names what the import stopped at."""
    said = json.dumps(finding)
    told = {canonicalize_name(word) for word in re.findall(r"[A-Za-z0-9][\w.-]*\w", said)}
    unparsed = True
    for error in found["errors"]:
        asker = owners.get(error["place"].partition("/")[0].partition(".")[0])
        for name, module in parsed(error["message"]):
            unparsed = False
            owner = owners.get(module.partition(".")[0], canonicalize_name(module.partition(".")[0]))
            if name and re.search(rf"\b{name}\b", said):
                return True
            if not name and (re.search(rf"\b{re.escape(module)}\b", said) or owner in told):
                return True
            if asker and asker != owner and {asker, owner} <= told:
                return True
    last = found["errors"][-1]
    asker = owners.get(last["place"].partition("/")[0].partition(".")[0])
    return unparsed and asker in told


def parsed(message: str) -> Iterator[tuple[str, str]]:
    """Pairs of a name (or nothing) and a module (or nothing) that an exception names."""
    for pattern in _NAMED:
        for match in pattern.finditer(message):
            groups = match.groupdict()
            yield groups.get("name") or "", groups.get("module") or ""


def owners_of(site: Path) -> dict[str, str]:
    """Distributions by top-level module."""
    return {module: found.name for found in installed_in(site) for module in found.modules}
