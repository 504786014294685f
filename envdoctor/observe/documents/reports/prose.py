"""What sentences say of the run: the model, the GPUs, settings, a framework and a method.

A sentence is a person's word and no measurement. Nothing is read in one that compares, advises or tells what works, and
nothing of which one sentence says two things. What lines, commands and configurations say counts before it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

from envdoctor.facts.registry import FactTypeError, parse_value, unlisted
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.reports.machine import Claim, Line, is_nameless, understood
from envdoctor.observe.model.config import shape_of
from envdoctor.observe.model.names import is_repo_name
from envdoctor.observe.recipe.document import scalar
from envdoctor.observe.recipe.formats import Formats, Meaning, spelled

_DIGIT = re.compile(r"\d")
#: Characters of sentences that are read of a report, and of one of them.
_CHARACTERS, _LONGEST = 30_000, 1_200
_END = re.compile(r"(?<=[.!?;])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)\s|(?<=[。！？；])|\n(?=[-*+•#]|\d\.)")
#: What a line of code, of a log or of a form begins with.
_NO_WORDS = re.compile(
    r"(?:File \"|Traceback|[\"'][\w.]{1,60}[\"']\s?:|from \w{1,60} import|import \w|>>>|[{(<|$]|\d{4}-\d\d"
    r"|\[(?:\d|rank|INFO|WARN|ERROR|DEBUG)"
    r"|\w{1,60}(?:\.\w{1,60}){0,4} ?= ?\w{1,60}[.(])"
)
#: ``Qwen2.5-7B``, ``org/name`` with what stands on around it (a path, an address); and ``Llama 3.1 8B Instruct``.
_NAME = re.compile(r"(?<![\w./\\@:-])[A-Za-z][\w./\\:-]{2,120}", re.ASCII)
_IN_WORDS = re.compile(
    r"(?<![\w./\\@:-])[A-Za-z]{2,12}(?:-?\d(?:\.\d)?)?(?: \d(?:\.\d)?)? \d{1,3}(?:\.\d)?[Bb]"
    r"(?: (?:Instruct|Chat|Base))?(?![\w/-])",
    re.ASCII,
)
#: ``per_device_eval_batch_size=2``, ``gpu_memory_utilization 0.95``.
_OPTION = re.compile(
    r"(?<![\w./-])(?:--)?([A-Za-z][a-z0-9]{0,20}(?:_[a-z0-9]{1,20}){1,5})[`'\"]?"
    r"(?:\s?[=:]\s?|\s(?:is |of |to |at |as )?|\s?(?:设为|设成|设置为|为|是)\s?)[`'\"]?"
    r"(true|false|\d{1,6}(?:\.\d{1,20})?(?:e-?\d{1,2})?)(?!\w|\.\d)",
    re.IGNORECASE | re.ASCII,
)


class Prose:
    """The part of the table ``report-forms`` about sentences, compiled for one report."""

    def __init__(self, matrix: Matrix, formats: Formats) -> None:
        self._matrix, self._formats, self._left = matrix, formats, _CHARACTERS
        words = matrix.part("report-forms", "prose")
        self._numbers: Mapping[str, int] = words["numbers"]
        self._doubt = re.compile(words["aside"], re.IGNORECASE)
        self._against = re.compile(words["against"], re.IGNORECASE)
        phrases = matrix.rows("report-forms", "phrase")
        self._phrases = [(row, re.compile(row["pattern"], re.I | re.A)) for row in phrases]

    def told(self, rows: Sequence[tuple[int, str]]) -> Iterator[Claim]:
        """Yield what the sentences of lines that stand together say; each line comes with its number."""
        rows = [(number, text) for number, text in rows if not _NO_WORDS.match(text)]
        text = "\n".join(line for _, line in rows)[: self._left]
        self._left -= len(text)
        ends = sorted(match.start() for ends in (_END, self._against) for match in ends.finditer(text))
        for start, end in pairwise([0, *ends, len(text)]):
            sentence = text[start:end]
            if len(sentence) > _LONGEST or self._doubt.search(sentence):
                continue
            for _, same in groupby(sorted(self._said(sentence), key=attrgetter("key")), attrgetter("key")):
                claims = list(same)
                first, *others = [claim for claim in claims if not is_nameless(claim)] or claims
                if all(other.value == first.value for other in others):
                    yield first._replace(line=rows[text.count("\n", 0, start + first.line)][0])

    def _said(self, sentence: str) -> Iterator[Claim]:
        """Yield claims, with their places in the sentence as lines."""
        for row, pattern in self._phrases:
            for match in pattern.finditer(sentence):
                groups = match.groupdict()
                value = row.get("says", groups.get("value"))
                if row["fact"] == "gpu.name":
                    yield from self._gpu(match.start(), groups)
                elif "more" in groups:
                    yield from self._claim(row["fact"], int(value) + int(groups["more"] or 0), match.start())
                else:
                    yield from self._claim(row["fact"], value, match.start())
        for match in _OPTION.finditer(sentence):
            meaning = self._options.get(match[1])
            if meaning is not None and (word := meaning.word(spelled(scalar(match[2])))):
                yield from self._claim(f"recipe.{meaning.field}", scalar(word), match.start())
        for match in (*_NAME.finditer(sentence), *_IN_WORDS.finditer(sentence)):
            name = match[0].rstrip(".:-").replace(" ", "-")
            if _DIGIT.search(name) and is_repo_name(name):
                yield from self._model(name, match.start())

    def _claim(self, key: str, value: object, place: int) -> Iterator[Claim]:
        spec = self._matrix.registry.find(key)
        with suppress(FactTypeError):
            if spec is not None and unlisted(spec, parsed := parse_value(spec, value)) is None:
                yield Claim(key, parsed, place)
                if key == "recipe.eval_batch_size":
                    yield Claim("recipe.batch_size", parsed, place)

    def _gpu(self, place: int, groups: Mapping[str, str | None]) -> Iterator[Claim]:
        """Yield the GPUs by the name that the tables have, with how many there are and their memory if that is said."""
        count, size = groups["count"] or groups["after"], groups["size"] or groups["before"]
        text = f"{groups['value']} {size}G" if size else f"{groups['value']}"
        if count:
            text = f"{self._numbers.get(count.lower(), count)} x {text}"
        yield from understood(Line((Claim("gpu.name", text, place),)), self._matrix).claims

    def _model(self, name: str, place: int) -> Iterator[Claim]:
        """Yield a model that the table of shapes has: as its repository if it is the only one of that name. Else its
        name, as that of a folder: of GLM-4 the repository with code of its own or that of transformers (``-hf``)."""
        shape = shape_of(name, self._shapes, self._matrix.rows("model-shapes", "suffix"))
        organisation, is_repo, _ = name.rpartition("/")
        copied = organisation in self._matrix.part("families", "copies")["organisations"]
        if shape is None or shape.bare or not (shape.vendor or copied) or (shape.unknown and not is_repo):
            return
        ported = any(f"{shape.like}-hf" in row["names"] for row in self._shapes)
        same = shape.like.lower().endswith(f"/{name.lower()}") and not ported
        if is_repo or same:
            yield Claim("model.repo", shape.like if same else name, place)
        else:
            yield Claim("model.path", name, place)

    @cached_property
    def _shapes(self) -> Sequence[Mapping[str, Any]]:
        return list(self._matrix.rows("model-shapes"))

    @cached_property
    def _options(self) -> Mapping[str, Meaning]:
        """Return what the keys of all formats mean that mean one thing, or what TrainingArguments mean by them."""
        fields: dict[str, set[str]] = {}
        chosen: dict[str, Meaning] = {}
        for form in (*self._formats, self._formats["hf-arguments"]):
            for key, meanings in form.keys.items():
                name = key.rpartition(".")[2].lower()
                for meaning in meanings[:1]:
                    fields.setdefault(name, set()).add(meaning.field)
                    chosen[name] = meaning
        own = self._formats["hf-arguments"].keys
        return {name: meaning for name, meaning in chosen.items() if len(fields[name]) == 1 or name in own}
