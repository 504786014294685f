"""Lines of prose that give versions: read only when nothing else stands in them.

"I tried torch 2.4.1 and it works, 2.5.0 gives NaN" names two versions and says that neither is installed. So a
line counts when every word of it is a version of a package, a GPU, or one of the few words that go with them; of other
sentences, aside, only what somebody says of their own machine: "I am using torch 2.4.1", "we train on 8 x A100".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim
from envdoctor.observe.documents.reports.forms import VERSION, Forms, Line
from envdoctor.observe.documents.reports.machine import (
    GPU,
    gpus_behind_label,
    gpus_written,
    plain_gpus,
    platform_claims,
)
from envdoctor.versions.pep440 import is_version

__all__ = ["Prose"]

_LONGEST = 300
_LEFT = re.compile(r"[A-Za-z'][A-Za-z'-]*|\d[\w.+-]*|[\u4e00-\u9fff]+|[<>?%$#@\\&]")
#: How a package got there says nothing against its version.
_SYSTEM = re.compile(
    r"(?i)\b(win(?=1[01])|ubuntu|debian|centos|windows|rocky linux|wsl2? ?)[ -]?"
    r"(\d{1,2}(?:\.\d{1,2}){0,2})?\b(?: ?LTS)?"
    r"(?:\s{1,3}(?:LTSC|Pro|Professional|Home|Enterprise|Server|Desktop|64[- ]?bit"
    r"|\d\dH\d|\(?x86_64\)?|\d{5}(?:\.\d{1,5})?)){0,4}"
)
_CUDA = re.compile(r"(?i)(?<![A-Za-z0-9])cuda[ :=]{0,3}\d{1,2}\.\d{1,2}(?:\.\d{1,3})?\b|\bcu\d{3}\b")
#: Linux inside Windows.
_WSL = re.compile(
    r"(?i)(?:win(?:dows)? ?1[01][ ,]{0,3})?\(?wsl ?2?\)?[ :(,]{0,3}(?:ubuntu|debian)?[ -]?[\d.]{0,7}(?: LTS)?[ )]{0,3}"
)
_ANY = re.compile("")
_SENTENCES = re.compile(r"(?<=[.!?])\s+|[。！？]")
_CLAUSES = re.compile(r"[,;:]\s|\((?!v?\d)|\bbut\b|\bwhile\b|\bwhereas\b|但|而")
_BESIDE_PACKAGES = re.compile(rf"(?i)\bcuda[ :=]{{0,3}}\d{{1,2}}\.\d(?:\.\d)?\b|{_SYSTEM.pattern[4:]}(?=[\s,])")
#: How it got there, what was not done, and what is said of this very environment: no doubt about its versions.
_SURE = re.compile(
    r"(?i)\b(?:by|via|through|using) (?:pip|conda)(?: install\w*)?\b|(?:没有|未|没)(?:更新|升级)"
    r"|(?:该|此|本|上述|以上)配置可以\w{0,20}"
)
#: What failed says how it was done, not how it should be.
_FAILURE = re.compile(r"(?i)\b(?:errors?|fails?|failed|crash(?:es)?)\b|报错|错误|失败|冲突")
_INSTALLING = re.compile(r"(?i)install\w*|安装|require\w*|dependenc\w*|latest|official|newest|update\w*|最新|官方")
_MINE = re.compile(r"(?i)\b(?:I|we|I'm|we're|my|our)\b")
_USING = re.compile(
    r"(?i)\A\W*(?:using|running)\s|\b(?:(?:I|we)(?:'m| am|'re| are)?(?: (?:\w{2,9}ly|already|still|just|also|now))?"
    r" (?:use|using|run|running|have|on)"
    r"|(?:my|our) \w{2,20}(?: \w{2,20})? (?:is|are|has))\s(?:with |of |on )?"
    r"|\bmy\s(?=[\w-]{2,20} version\b)|我(?:用|使用)的?是?\s?|(?:当前|目前)\s?(?:用的是|使用的?是?|是|为)?\s?"
)
#: A GPU that the sentence is about, not one of somebody else's.
_ON = re.compile(
    r"(?i)\b(?:on|with|using|have|has|is|are|contains?)\s(?:(?!than)[\w-]{1,12}\s){0,3}[`\"'*]{0,3}\Z|(?:[用在有是]|配置|显卡|机器)\s?[`\"'*]{0,3}\Z"
)
_IF = re.compile(
    r"(?i)\b(?:no|not|\w{2,6}n't|without|if|or|would|could|can|may|than|like|e\.g|paper|authors?|they|your?|another)\b"
    r"|\?|没有|如果|是否|能否|吗|可以|论文|作者|或者?"
)
_HOW = re.compile(r"(?<=\d)\s{1,4}\((?:imported|installed|built|from|via)\b[^()]{0,80}\)\Z")


class Prose:
    """Reads sentences; ``doubtful`` finds the words that make every version near them doubtful."""

    def __init__(self, matrix: Matrix, forms: Forms) -> None:
        self._matrix, self._forms = matrix, forms
        words = matrix.part("report-forms", "prose")
        self._allowed = frozenset(words["allowed"])
        han = sorted((word for word in self._allowed if not word.isascii()), key=len, reverse=True)
        self._han = re.compile("|".join(han))
        latin, other = ([word for word in words["doubt"] if word.isascii() is kind] for kind in (True, False))
        self._doubt = re.compile(rf"(?i)\b(?:{'|'.join(map(re.escape, latin))})|{'|'.join(other)}")
        names = "|".join(
            re.escape(name).replace(r"\-", "[-_]")
            for name in sorted((*forms.names, "python", "py"), key=len, reverse=True)
        )
        self._pair = re.compile(
            rf"(?i)(?<![A-Za-z0-9_./@-])({names})['`*]?\s?(?:\s?(?:version|版本)\s?(?:is\s|[:=]\s?"
            rf"|[=:]\s?|为|是)?|[=:：]{{1,2}}\s?|==|\s?=\s?|\s?[为是]\s?|使用的?是?\s?|\s?\(|@)?[ `*]?v?({VERSION})\)?"
            rf"(?![A-Za-z0-9_+-]|\.[A-Za-z0-9])"
        )

    def doubtful(self, text: str) -> re.Match[str] | None:
        """The first word that makes versions near it doubtful."""
        return self._doubt.search(_SURE.sub(" ", text))

    def read(self, text: str, number: int) -> Line | None:
        """What a line claims; None for a line that names no version of a package."""
        if len(text) > _LONGEST or not any(char.isdigit() for char in text):
            return None
        text = _HOW.sub("", text)
        pairs = self._pair.search(text)
        if pairs is None:
            return self._alone(text, number) or self._aside(text, number)
        claims = () if self.doubtful(text) else tuple(self._claims(text, number))
        if not claims and (aside := self._aside(text, number)) is not None:
            return aside
        named = self._forms.package(pairs[1])
        return Line(claims, "" if claims else f"pkg.{named}" if named else "python.version")

    def _alone(self, text: str, number: int) -> Line | None:
        """A line that is a system or GPUs and nothing else."""
        if _WSL.fullmatch(text):
            return Line((Claim("os.platform", "linux", number, True), Claim("os.wsl", True, number, True)))
        if _SYSTEM.fullmatch(text):
            return Line(tuple(one._replace(loose=True) for one in platform_claims(text, number, self._matrix)))
        if (
            re.search(r"(?i)gpu|nvidia|rtx|tesla|geforce|card|卡|\d ?[x*×] ?\w|\w [x*×] ?\d|\b[AHLV]\d{2,3}\b", text)
            is None
        ):
            return None
        text = _CUDA.sub(" ", text).strip()
        left = GPU.sub(" ", text)
        said = not self.doubtful(text) and all(self._may_stand(word) for word in _LEFT.findall(left))
        gpus = (gpus_written if said else gpus_behind_label)(text, number, self._matrix)
        return Line((gpus._replace(loose=True),)) if gpus else None

    def of_this(self, heading: str) -> bool:
        """Whether a heading speaks of an installation that failed, or of what its writer has."""
        own = _FAILURE.search(heading) is not None or _USING.search(heading) is not None
        return own and self.doubtful(_INSTALLING.sub(" ", heading)) is None

    def own_title(self, text: str, number: int) -> Line | None:
        """A title, which is about the writer's own machine."""
        return self._aside(text, number, _ANY)

    def _aside(self, text: str, number: int, mine: re.Pattern[str] = _MINE) -> Line | None:
        """What sentences say of the writer's own machine: versions behind "I am using", GPUs with their number."""
        claims: list[Claim] = []
        for sentence in _SENTENCES.split(text):
            own = (
                any(one.search(sentence) for one in (mine, _FAILURE))
                or _USING.match(sentence) is not None
                or "\u4e00" <= max(sentence, default="") <= "\u9fff"
            )
            begin = 0
            for clause in _CLAUSES.split(sentence):
                begin = sentence.index(clause, begin)
                if self.doubtful(clause) is None:
                    using = _USING.search(clause)
                    if own and using is not None and _IF.search(clause) is None:
                        claims += self._in_a_row(sentence[begin + using.end() :], number)
                    claims += self._own_gpus(clause, number, own)
        asides = tuple(claim._replace(aside=True, loose=False) for claim in claims)
        return Line(asides, table=True) if asides else None

    def _in_a_row(self, text: str, number: int) -> Iterator[Claim]:
        """Versions at the beginning of a text, one behind the other."""
        while (found := self._pair.match(text) or _BESIDE_PACKAGES.match(text)) is not None:
            if found.re is self._pair:
                yield from self._one_version(found, number)
            text = re.sub(r"\A[\s,+&/]*(?:(?:and|with|on)\s|和|与|、)?\s*", "", text[found.end() :])

    def _own_gpus(self, clause: str, number: int, own: bool) -> Iterator[Claim]:
        clause = plain_gpus(clause)
        found = list(GPU.finditer(clause))
        if len(found) != 1:
            return
        before, counted = clause[: found[0].start()], bool(found[0][1] or found[0][3])
        if (counted or (own and _ON.search(before) is not None)) and _IF.search(before) is None:
            gpus = gpus_written(clause, number, self._matrix)
            if gpus is not None:
                yield gpus

    def _claims(self, text: str, number: int) -> Iterator[Claim]:
        left = self._pair.sub(" ", text)
        left = re.sub(_SYSTEM, " ", left)
        left = _CUDA.sub(" ", left)
        if any(not self._may_stand(word) for word in _LEFT.findall(GPU.sub(" ", left))):
            return
        for found in self._pair.finditer(text):
            yield from self._one_version(found, number)
        gpus = gpus_written(left, number, self._matrix)
        if gpus is not None:
            yield gpus._replace(loose=True)
        for system in _SYSTEM.finditer(text):
            yield from (claim._replace(loose=True) for claim in platform_claims(system[0], number, self._matrix))

    def _one_version(self, found: re.Match[str], number: int) -> Iterator[Claim]:
        name, value = found[1].lower(), found[2]
        if name in ("python", "py"):
            value = value.partition("+")[0]
            key = "python.version" if value.count(".") == 2 else "python.minor"
            if value.startswith(("3.", "2.7")):
                yield Claim(key, value, number, loose=True)
        elif (package := self._forms.package(name)) is not None and is_version(value):
            yield from self._forms.version(package, value, number, True)

    def _may_stand(self, word: str) -> bool:
        if "\u4e00" <= word[0] <= "\u9fff":
            return not self._han.sub("", word)
        return word.lower() in self._allowed
