"""Child script: look at a data file: the size of every row, and the texts of some as they go into the tokenizer.

It is asked with ``path``, ``template`` (the chat template, or null), ``variables`` (its special tokens), ``sampled``
(how many rows of all sizes) and ``longest`` (how many of the largest). It answers with a ``problem``, or ``sizes`` of
all rows, ``rows`` as pairs of a row's number and its texts (``sampled`` rows of all sizes, then the others from the
largest down), ``formats`` of the rows, ``unread`` and ``refused``, each a list of rows with the reason.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from envdoctor.lengths.rows import DataProblem, rows_of
from envdoctor.lengths.shapes import RowProblem, Sample, plain_text, samples_of
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

#: Characters of all texts that are handed on.
_MOST_TEXT = 24 << 20


def answer(**request: Any) -> dict[str, Any]:
    """What the parent is told."""
    try:
        return _looked_at(request)
    except DataProblem as error:
        return {"problem": str(error)}
    except OSError as error:
        return {"problem": Message("cannot be read: {}", because_of(error))}


def _looked_at(request: dict[str, Any]) -> dict[str, Any]:
    render = _renderer(request["template"], request["variables"])
    with open(Files().open(request["path"]), "rb") as file:
        rows = rows_of(file, request["path"])
        ordered = sorted(range(len(rows.sizes)), key=rows.sizes.__getitem__)
        sampled = _of_all_sizes(rows.sizes, ordered, request["sampled"])
        formats: Counter[str] = Counter()
        found: list[tuple[int, list[str]]] = []
        unread: list[tuple[int, str]] = []
        refused: list[tuple[int, str]] = []
        room = _MOST_TEXT
        for index in dict.fromkeys([*sampled, *ordered[: -request["longest"] - 1 : -1]]):
            try:
                name, samples = samples_of(rows.row(index))
            except RecursionError:
                unread.append((index + 1, Message("is nested too deeply")))
                continue
            except RowProblem as error:
                unread.append((index + 1, str(error)))
                continue
            formats[name] += 1
            texts = []
            for sample in samples:
                text, problem = render(sample)
                texts.append(text)
                if problem:
                    refused.append((index + 1, problem))
            room -= sum(map(len, texts))
            if room < 0:
                break
            found.append((index, texts))
    there = set(sampled)
    known = {"formats": formats, "sampled": sum(index in there for index, _ in found)}
    return {"sizes": list(rows.sizes), "rows": found, **known, "unread": sorted(unread), "refused": sorted(refused)}


def _of_all_sizes(sizes: Sequence[int], ordered: Sequence[int], number: int) -> list[int]:
    """Rows at random, half of them by how many there are and half by how large they are: each from its own stretch of
    the rows, which are ``ordered`` by size."""
    draw = random.Random(0)  # noqa: S311
    half = number // 2
    until = list(accumulate(sizes[index] for index in ordered))
    by_number = [int((place + draw.random()) * len(ordered) / half) for place in range(half)]
    by_size = [bisect_right(until, (place + draw.random()) * until[-1] / half) for place in range(half)]
    return list(dict.fromkeys(ordered[min(place, len(ordered) - 1)] for place in (*by_number, *by_size)))


def _renderer(source: str | None, variables: dict[str, str]) -> Callable[[Sample], tuple[str, str]]:
    """What makes the text of a sample, and says why the template did not where it refused."""
    if source is None:
        return lambda sample: (plain_text(sample), "")
    from envdoctor.sandbox.templates import template_environment

    environment = template_environment()
    compiled: list[Any] = []

    def render(sample: Sample) -> tuple[str, str]:
        if isinstance(sample, str):
            return sample, ""
        try:
            if not compiled:
                compiled.append(environment.from_string(source))
            return compiled[0].render(messages=sample, tools=None, documents=None, **variables), ""
        except Exception as error:
            return plain_text(sample), f"{type(error).__name__}: {error}"[:200]

    return render
