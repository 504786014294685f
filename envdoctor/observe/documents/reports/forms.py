"""Lines of reports by the table ``report-forms``: lines of one shape, labels with their values, and the one sentence
that is read: packages with their versions, and nothing else but a few words of the table."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.registry import Registry
from envdoctor.facts.values import ABSENT, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.machine import Claim, Line, understood
from envdoctor.text.message import Message
from envdoctor.versions.names import normalise, valid_name
from envdoctor.versions.pep440 import is_version

_VERSION = (
    r"\d{1,4}(?:\.\d{1,6}){1,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,10}){0,3}(?:\+[A-Za-z0-9]"
    r"(?:[A-Za-z0-9.]{0,40}[A-Za-z0-9])?)?"
)
_LABEL = re.compile(r"(?:[-*+•·] ?|\d\. )?([^:=|]{1,110}?)[:=]{1,2}(.{1,400})\Z")
_DOTS = re.compile(r"(\S[^.]{1,60}) \.{2,40} (.{1,200})\Z")
_VALUE = re.compile(
    rf"v?({_VERSION})(?:\s*\((?:True|False|GPU|CUDA|ROCM|CPU|NPU|XPU|MPS|NA|cu\d{{2,3}}|cpu|None)\))?[,.]?\Z",
    re.IGNORECASE,
)
#: How a package got there says nothing against its version.
_HOW = re.compile(r"(?<=\d)\s{1,4}\((?:imported|installed|built|from|via)\b[^()]{0,80}\)\Z")
_NONE = ("not installed", "not installed (na)", "未安装")
_UNSAID = (
    *("could not collect", "n/a", "none", "no", "na", "not applicable", "<fill in>", "unknown", ""),
    Message("not found"),
)
#: What people write among packages.
_NO_PACKAGES = ("cuda", "cudnn", "gpu", "driver", "os")
_BUILT_FOR = re.compile(r"cuda(\d{2})\.?(\d)|cuda(\d{2}\.\d)")
_CUDA = r"(?<![A-Za-z0-9])cuda[ :=]{0,3}\d{1,2}\.\d{1,2}(?:\.\d{1,3})?\b|\bcu\d{3}\b"
#: What GPUs are called by: ``3090``, ``A100``, ``RTX4090``, ``24G``.
_NUMBER = r"(?<![A-Za-z0-9_.])[a-z]{0,3}\d{2,4}[a-z]{0,3}(?![A-Za-z0-9_.])"
_LONGEST = 300


class Forms:
    """The table, compiled for one report. ``names`` are what packages are called, each with its normalised name."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self.registry: Registry = matrix.registry
        self.first = frozenset(matrix.registry.first("pkg"))
        self.names = {name: name for name in (*matrix.ledger.packages(), *self.first)}
        for row in matrix.rows("report-forms", "package"):
            self.names.update(dict.fromkeys(row["also"], row["name"]))
        self._labels: dict[str, list[tuple[Mapping[str, Any], re.Pattern[str]]]] = {}
        for row in matrix.rows("report-forms", "label"):
            for label in row["labels"]:
                self._labels.setdefault(label, []).append((row, re.compile(row["values"], re.IGNORECASE)))
        self._lines = [(row, re.compile(row["pattern"])) for row in matrix.rows("report-forms", "line")]
        words = matrix.part("report-forms", "prose")
        systems = _any_of(word for row in matrix.rows("report-forms", "system") for word in row["words"])
        self._beside = re.compile(
            rf"(?i)\b(?:{systems})[ -]?[\d.]{{0,7}}\b|{_CUDA}|{_NUMBER}|\b(?:{_any_of(words['allowed'], latin=True)})\b"
            rf"|{_any_of(words['allowed'], latin=False)}"
        )
        self._doubt = re.compile(
            rf"(?i)\b(?:{_any_of(words['doubt'], latin=True)})|{_any_of(words['doubt'], latin=False)}"
        )
        names = _any_of((*self.names, "python", "py")).replace(r"\-", "[-_]")
        self._pair = re.compile(
            rf"(?i)(?<![A-Za-z0-9_./@-])({names})['`*]?\s{{0,2}}(?:(?:version|版本|is|==?|:|@|\(|为|是|使用的?)\s?){{0,2}}"
            rf"[`*]?v?({_VERSION})\)?(?![A-Za-z0-9_+-]|\.[A-Za-z0-9])"
        )

    def doubtful(self, text: str) -> bool:
        """Return whether a word makes versions near it doubtful: one that was tried, advised or left."""
        return self._doubt.search(text) is not None

    def package(self, written: str) -> str | None:
        """Return the normalised name of a package that is known, by what people call it."""
        lowered = written.lower().strip()
        return self.names.get(lowered) or self.names.get(normalise(lowered))

    def shaped(self, text: str, number: int, in_table: bool) -> Line | None:
        """Read a line of the table's shapes; None for another line."""
        claims: list[Claim] = []
        for row, pattern in self._lines:
            if row.get("has", "") not in text:
                continue
            behind = text.partition(row["has"])[2] if row.get("each") else text
            for found in pattern.finditer(behind) if row.get("each") else [pattern.fullmatch(text)]:
                claims += self._shaped(row, found, number, in_table) if found is not None else ()
        return understood(Line(tuple(claims)), self._matrix) if claims else None

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
        yield self._version(name, value, number, loose and not in_table)
        built = _BUILT_FOR.search(groups.get("build") or "") if name == "torch" else None
        if built is not None:
            yield Claim("torch.cuda", built[3] or f"{built[1]}.{built[2]}", number)

    def _version(self, package: str, value: str, number: int, loose: bool) -> Claim:
        """Claim a package's version. Of packages that are asked for first everybody writes half versions by hand."""
        partial = package in self.first and re.fullmatch(r"\d{1,3}\.\d{1,3}", value) is not None
        return Claim(f"pkg.{package}", value, number, loose, partial)

    def labelled(self, text: str, number: int) -> Line | None:
        """Read a line with a label that is known; None for another line."""
        found = _LABEL.match(text) or _DOTS.match(text)
        if found is None:
            return None
        label = " ".join(re.sub(r"[`*🤗\"]", "", found[1]).lower().split())
        said = _HOW.sub("", found[2].strip(" `*\"';；。\t"))
        rows = self._labels.get(label) or self._labels.get(label.partition("(")[0].rstrip())
        if rows is not None:
            return understood(self._of_label(rows, said, number), self._matrix)
        words = re.sub(r" ?\([^()]{0,40}\)", "", label)
        named = re.sub(r"(?:[\s'.]{1,3}(?:installed )?version|\s?版本号?|\.__version__)\Z", "", words)
        package = self.package(named.strip(" '"))
        if said.lower() in _NONE and named != words:
            package = package or valid_name(named.strip(" '"))
            return Line((Claim(f"pkg.{package}", ABSENT, number),)) if package else None
        value = _VALUE.match(said) or _VALUE.match(said.lower().removeprefix(f"{package}-"))
        if package is None or (value is None and named == words):
            return None
        if value is None or not is_version(value[1]):
            return Line(unread="" if said.lower() in _UNSAID else f"pkg.{package}")
        return Line((self._version(package, value[1], number, loose=named == words),))

    def _of_label(self, rows: Sequence[tuple[Mapping[str, Any], re.Pattern[str]]], said: str, number: int) -> Line:
        first = rows[0][0]
        if said.lower() in first.get("absent", ()):
            return Line((Claim(first["fact"], ABSENT, number),))
        if said.lower() in _UNSAID:
            return Line()
        claims = []
        for row, pattern in rows:
            found = pattern.fullmatch(said)
            if found is not None:
                spec = self.registry.find(row["fact"])
                value: Value = float(found["value"]) if spec is not None and spec.type == "number" else found["value"]
                claims.append(Claim(row["fact"], value, number))
        return Line(tuple(claims), "" if claims or first.get("quiet") else first["fact"])

    def sentence(self, text: str, number: int) -> Line | None:
        """Read packages with their versions (``I use torch 2.4.1 and peft 0.14.0``); None for a line without any."""
        pairs = list(self._pair.finditer(text)) if len(text) <= _LONGEST else []
        if not pairs:
            return None
        left = self._beside.sub(" ", self._pair.sub(" ", text))
        claims = [claim for pair in pairs for claim in self._of_pair(pair[1].lower(), pair[2], number)]
        if re.search(r"[\w<>?%$#@\\&]", left) or self.doubtful(text) or not claims:
            return Line(unread=f"pkg.{package}" if (package := self.package(pairs[0][1])) else "python.version")
        return Line(tuple(claims))

    def _of_pair(self, name: str, value: str, number: int) -> Iterator[Claim]:
        if name in ("python", "py"):
            value = value.partition("+")[0]
            if value.startswith(("3.", "2.7")):
                yield Claim("python.version" if value.count(".") == 2 else "python.minor", value, number, loose=True)
        elif (package := self.package(name)) is not None and is_version(value):
            yield self._version(package, value, number, loose=True)


def _any_of(words: Iterable[str], latin: bool | None = None) -> str:
    """Return a pattern for any of the words, the longest first; ``latin``: of those in this script or not."""
    chosen = (word for word in words if latin is None or word.isascii() is latin)
    return "|".join(re.escape(word) for word in sorted(chosen, key=len, reverse=True))
