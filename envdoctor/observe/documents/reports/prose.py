"""Lines of prose that give versions: read only when nothing else stands in them.

"I tried torch 2.4.1 and it works, 2.5.0 gives NaN" names two versions and says that neither is installed. So a
line counts when every word of it is a version of a package, a GPU, or one of the few words that go with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim
from envdoctor.observe.documents.reports.forms import VERSION, Forms, Line
from envdoctor.observe.documents.reports.machine import GPU, gpus_behind_label, gpus_written, platform_claims
from envdoctor.versions.pep440 import is_version

__all__ = ["Prose"]

_LONGEST = 300
_LEFT = re.compile(r"[A-Za-z'][A-Za-z'-]*|\d[\w.+-]*|[\u4e00-\u9fff]+|[<>?%$#@\\&]")
#: How a package got there says nothing against its version.
_HOW = re.compile(r"(?<=\d)\s{1,4}\((?:imported|installed|built|from|via)\b[^()]{0,80}\)\Z")
_SYSTEM = re.compile(
    r"(?i)\b(win(?=1[01])|ubuntu|debian|centos|windows|rocky linux|wsl2? ?)[ -]?"
    r"(\d{1,2}(?:\.\d{1,2}){0,2})?\b(?: ?LTS)?"
)


class Prose:
    """Reads sentences; ``doubtful`` finds the words that make every version near them doubtful."""

    def __init__(self, matrix: Matrix, forms: Forms) -> None:
        self._matrix, self._forms = matrix, forms
        words = matrix.part("report-forms", "prose")
        self._allowed = frozenset(words["allowed"])
        han = sorted((word for word in self._allowed if not word.isascii()), key=len, reverse=True)
        self._han = re.compile("|".join(han))
        latin, other = ([word for word in words["doubt"] if word.isascii() is kind] for kind in (True, False))
        self.doubtful = re.compile(rf"(?i)\b(?:{'|'.join(map(re.escape, latin))})|{'|'.join(other)}").search
        names = "|".join(
            re.escape(name).replace(r"\-", "[-_]") for name in sorted((*forms.names, "python"), key=len, reverse=True)
        )
        self._pair = re.compile(
            rf"(?i)(?<![A-Za-z0-9_./@-])({names})['`*]?\s?(?:\s?(?:version|版本)\s?(?:is\s"
            rf"|为|是)?|[=:：]{{1,2}}\s?|==|\s?=\s?|\s?为\s?|\s?\(|@)?[ `*]?v?({VERSION})\)?"
            rf"(?![A-Za-z0-9_+-]|\.[A-Za-z0-9])"
        )

    def read(self, text: str, number: int) -> Line | None:
        """What a line claims; None for a line that names no version of a package."""
        if len(text) > _LONGEST or not any(char.isdigit() for char in text):
            return None
        text = _HOW.sub("", text)
        pairs = self._pair.search(text)
        if pairs is None:
            return self._alone(text, number)
        claims = () if self.doubtful(text) else tuple(self._claims(text, number))
        named = self._forms.package(pairs[1])
        return Line(claims, "" if claims else f"pkg.{named}" if named else "python.version")

    def _alone(self, text: str, number: int) -> Line | None:
        """A line that is a system or GPUs and nothing else."""
        if _SYSTEM.fullmatch(text):
            return Line(tuple(one._replace(loose=True) for one in platform_claims(text, number, self._matrix)))
        if re.search(r"(?i)gpu|nvidia|rtx|tesla|geforce|显卡|卡|\d ?[x*×] ?\w|\w [x*×] ?\d", text) is None:
            return None
        left = GPU.sub(" ", text)
        said = not self.doubtful(text) and all(self._may_stand(word) for word in _LEFT.findall(left))
        gpus = (gpus_written if said else gpus_behind_label)(text, number, self._matrix)
        return Line((gpus._replace(loose=True),)) if gpus else None

    def _claims(self, text: str, number: int) -> Iterator[Claim]:
        left = self._pair.sub(" ", text)
        left = re.sub(_SYSTEM, " ", left)
        left = re.sub(r"(?i)\bcuda[ :=]{0,3}\d{1,2}\.\d\b|\bcu\d{3}\b", " ", left)
        if any(not self._may_stand(word) for word in _LEFT.findall(GPU.sub(" ", left))):
            return
        for found in self._pair.finditer(text):
            name, value = found[1].lower(), found[2]
            if name == "python":
                value = value.partition("+")[0]
                key = "python.version" if value.count(".") == 2 else "python.minor"
                if value.startswith(("3.", "2.7")):
                    yield Claim(key, value, number, loose=True)
            elif (package := self._forms.package(name)) is not None and is_version(value):
                yield from self._forms.version(package, value, number, True)
        gpus = gpus_written(left, number, self._matrix)
        if gpus is not None:
            yield gpus._replace(loose=True)
        for system in _SYSTEM.finditer(text):
            yield from (claim._replace(loose=True) for claim in platform_claims(system[0], number, self._matrix))

    def _may_stand(self, word: str) -> bool:
        if "\u4e00" <= word[0] <= "\u9fff":
            return not self._han.sub("", word)
        return word.lower() in self._allowed
