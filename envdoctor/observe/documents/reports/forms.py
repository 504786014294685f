"""Lines of reports by the table ``report-forms``: labels with their values, and lines of one shape."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.facts.values import ABSENT, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim
from envdoctor.versions.names import normalise, valid_name
from envdoctor.versions.pep440 import is_version

__all__ = ["VERSION", "Forms", "Line"]

VERSION = (
    r"\d{1,4}(?:\.\d{1,6}){1,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,10}){0,3}(?:\+[A-Za-z0-9]"
    r"(?:[A-Za-z0-9.]{0,40}[A-Za-z0-9])?)?"
)
_LABEL = re.compile(
    r"\s{0,40}(?:[-*+•·] {0,4}|\d\. )?[`*🤗 \"]{0,6}([^:=|`*\"]{1,60})[`*\"]{0,3}"
    r"([^:=|]{0,50}?)\s{0,60}[:=]{1,2}\s{0,20}(.{1,400})\Z"
)
_DOTS = re.compile(r"(\S[^.]{1,60}) \.{2,40} (.{1,200})\Z")
_VALUE = re.compile(
    rf"v?({VERSION})(?:\s*\((?:True|False|GPU|CUDA|ROCM|CPU|NPU|XPU|MPS|NA|cu\d{{2,3}}|cpu|None)\))?[,.]?\Z",
    re.IGNORECASE,
)
_NONE = ("not installed", "not installed (na)", "未安装")
_UNSAID = ("could not collect", "n/a", "none", "no", "na", "not applicable", "<fill in>", "unknown", "not found", "")
#: What people write among packages.
_NO_PACKAGES = ("cuda", "cudnn", "gpu", "driver", "os")
_BUILT_FOR = re.compile(r"cuda(\d{2})\.?(\d)|cuda(\d{2}\.\d)")


class Line(NamedTuple):
    """What a line said: claims, and the fact that it speaks of but that could not be read (``unread``)."""

    claims: tuple[Claim, ...] = ()
    unread: str = ""
    table: bool = False


class Forms:
    """The table, compiled for one report. ``names`` are what packages are called, each with its normalised name."""

    def __init__(self, matrix: Matrix) -> None:
        registry = matrix.registry
        self.registry: Registry = registry
        self.first = frozenset(registry.first("pkg"))
        known = {*matrix.ledger.packages(), *self.first}
        self.names = {name: name for name in known}
        for row in matrix.rows("report-forms", "package"):
            self.names.update(dict.fromkeys(row["also"], row["name"]))
        self._labels: dict[str, list[tuple[Mapping[str, Any], re.Pattern[str]]]] = {}
        for row in matrix.rows("report-forms", "label"):
            for label in row["labels"]:
                self._labels.setdefault(label, []).append((row, re.compile(row["values"], re.IGNORECASE)))
        self._lines = [(row, re.compile(row["pattern"])) for row in matrix.rows("report-forms", "line")]

    def package(self, written: str) -> str | None:
        """The normalised name of a package that is known, by what people call it."""
        lowered = written.lower().strip()
        return self.names.get(lowered) or self.names.get(normalise(lowered))

    def shaped(self, text: str, number: int, in_table: bool) -> Line | None:
        """A line of the table's shapes; None for another line."""
        claims: list[Claim] = []
        for row, pattern in self._lines:
            if row.get("has", "") not in text:
                continue
            behind = text.partition(row["has"])[2] if row.get("each") else text
            for found in pattern.finditer(behind) if row.get("each") else [pattern.fullmatch(text)]:
                claims += self._shaped(row, found, number, in_table) if found is not None else ()
        return Line(tuple(claims), table=not claims[0].loose) if claims else None

    def _shaped(self, row: Mapping[str, Any], found: re.Match[str], number: int, in_table: bool) -> Iterator[Claim]:
        groups = found.groupdict()
        value, loose = groups["value"].replace("%2B", "+"), row.get("loose", False)
        if "fact" in row:
            yield Claim(row["fact"], value, number)
            return
        name = self.package(groups["name"]) if "-" not in groups["name"] or row.get("table") else None
        name = name or valid_name(groups["name"])
        if row.get("table") and not in_table:
            build = groups["build"] or ""
            if build and re.fullmatch(r"pypi|\w{1,40}_\d{1,4}(?:_\w{1,30})?|py3.{1,60}", build) is None:
                return
            if name not in self.names.values() and not build:
                return
            loose = True
        if name == "python":
            yield Claim("python.version", value, number, loose and not in_table)
            return
        if (
            name is None
            or name in _NO_PACKAGES
            or (row.get("known") and name not in self.names.values())
            or not is_version(value)
        ):
            return
        yield from self.version(name, value, number, loose and not in_table)
        built = _BUILT_FOR.search(groups.get("build") or "") if name == "torch" else None
        if built is not None:
            yield Claim("torch.cuda", built[3] or f"{built[1]}.{built[2]}", number)

    def version(self, package: str, value: str, number: int, loose: bool) -> Iterator[Claim]:
        """A package's version. Of packages that are asked for first everybody writes half versions by hand."""
        partial = package in self.first and re.fullmatch(r"\d{1,3}\.\d{1,3}", value) is not None
        yield Claim(f"pkg.{package}", value, number, loose, partial)

    def labelled(self, text: str, number: int) -> Line | None:
        """A line with a label that is known; None for another line."""
        found = _LABEL.match(text) or _DOTS.match(text)
        if found is None:
            return None
        label = found[1].strip().strip("🤗").strip().lower()
        rest = found[2].strip().lower() if found.lastindex == 3 else ""
        said = str(found[found.lastindex or 1]).strip(" `*\"';；。\t")
        rows = self._labels.get(f"{label} {rest}".strip()) or self._labels.get(re.sub(r"\s*\(.*", "", label))
        if rows is not None:
            return self._of_label(rows, said, number)
        words = re.sub(r"\s*\([^)]{0,40}\)", "", f"{label} {rest}".strip())
        named = re.fullmatch(r"(.{1,40}?)(?:[\s'\"`.]{0,3}(?:version|版本号?|installed version)|\.__version__)", words)
        package = self.package(named[1].strip(" '\"`")) if named else None
        none = said.lower() in _NONE
        package = package or (valid_name(named[1].strip(" '\"`")) if named and none else None)
        if package is None or "s_version" in text:
            return None
        if none:
            return Line((Claim(f"pkg.{package}", ABSENT, number),), table=True)
        value = _VALUE.match(said) or _VALUE.match(said.lower().removeprefix(f"{package}-"))
        if value is None or not is_version(value[1]):
            return Line(unread="" if said.lower() in _UNSAID else f"pkg.{package}")
        return Line(tuple(self.version(package, value[1], number, False)), table=True)

    def _of_label(self, rows: Sequence[tuple[Mapping[str, Any], re.Pattern[str]]], said: str, number: int) -> Line:
        if said.lower() in rows[0][0].get("absent", ()):
            return Line((Claim(rows[0][0]["fact"], ABSENT, number),), table=True)
        if said.lower() in _UNSAID:
            return Line()
        claims = []
        for row, pattern in rows:
            found = pattern.fullmatch(said)
            if found is not None:
                spec = self.registry.find(row["fact"])
                value: Value = float(found["value"]) if spec is not None and spec.type == "number" else found["value"]
                claims.append(Claim(row["fact"], value, number))
        return (
            Line(tuple(claims), table=True)
            if claims
            else Line(unread="" if rows[0][0].get("quiet") else rows[0][0]["fact"])
        )
