"""Bills of materials in JSON, CycloneDX and SPDX, as syft, trivy and uv write them: packages by their purl."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote

from envdoctor.facts.values import Unknown
from envdoctor.observe.documents.locks.conda_lock import Conda
from envdoctor.observe.documents.locks.lock import Lock, Locked, LockError, Wish, bound, items, place_in
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import is_version
from envdoctor.versions.requirement import valid_name

_PURL = r"pkg:(pypi|conda)/([^@?#\s]+)(?:@([^?#\s]+))?(?:\?([^#\s]*))?"
_WRITTEN = r"pkg:(?:pypi|conda)/[^\"\\]{1,2000}"
#: As uv says when a package counts.
_MARKER = "uv:package:marker"
_DEEPEST = 20


def read(text: str, path: str, wish: Wish) -> Lock:
    """The packages of Python and of conda that the document lists. Raises :class:`LockError`."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise LockError("is not JSON: {}", error) from None
    if not isinstance(document, dict) or not {"bomFormat", "spdxVersion"} & set(document):
        raise LockError("is no bill of materials by CycloneDX or SPDX")
    lines = _lines(text)
    conda, found = Conda(path, wish), []
    for purl, marker in _purls(document):
        match = re.match(_PURL, purl)
        place = place_in(path, lines.get(purl))
        if match is None:
            continue
        kind, name, version, more = match[1], unquote(match[2]), unquote(match[3] or ""), parse_qs(match[4] or "")
        if kind == "conda":
            build, subdir = (more.get(key, [""])[0] for key in ("build", "subdir"))
            conda.files([(f"/{subdir or 'noarch'}/{name}-{version}-{build or '0'}.conda", place)])
        elif (valid := valid_name(name)) is not None:
            known: str | Unknown = version if is_version(version) else Unknown(Message("{} names no version", place))
            found.append(Locked(valid, known, place, marker))
    if not found:
        return conda.lock()
    return Lock(found) if not conda.packages else (lock := conda.lock())._replace(packages=[*found, *lock.packages])


def _purls(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each package's purl, with its marker."""
    for package in items(document.get("packages")):
        for reference in items(package.get("externalRefs")):
            if reference.get("referenceType") == "purl":
                yield str(reference.get("referenceLocator")), ""
    level = items(document.get("components"))
    for _ in range(_DEEPEST):
        inner: list[dict[str, Any]] = []
        for component in level:
            said = {one.get("name"): one.get("value") for one in items(component.get("properties"))}
            yield str(component.get("purl")), str(said.get(_MARKER) or "")
            inner += items(component.get("components"))
        if not inner:
            return
        bound(len(inner))
        level = inner
    raise LockError("is nested more than {} levels deep", _DEEPEST)


def _lines(text: str) -> dict[str, int]:
    """The line of the first place that has each purl; nothing where the document is one line."""
    found: dict[str, int] = {}
    line, counted = 1, 0
    for match in re.finditer(_WRITTEN, text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        found.setdefault(match[0], line)
    return found if line > 1 else {}
