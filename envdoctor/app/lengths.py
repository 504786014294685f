"""``envdoctor memory --data``: the lengths of the training data, and the longest sample as the recipe cuts it."""

from __future__ import annotations

import os

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Sources
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact
from envdoctor.knowledge.matrix import Matrix
from envdoctor.lengths.measuring import DataError, measure, tokenizer_in
from envdoctor.lengths.section import DataSection
from envdoctor.lengths.summary import fed_length, summary
from envdoctor.memory.recipe import batch_of
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.source import resolve
from envdoctor.sandbox.target import Place
from envdoctor.text.message import said_by


def lengths_of(
    data: str, tokenizer: str | None, facts: FactSet, *, sources: Sources, matrix: Matrix, place: Place
) -> tuple[DataSection, list[Fact]]:
    """The section of the report, and what it changes of the facts: ``recipe.max_length``. ``tokenizer`` names a folder
    or a repository, None the model's.

    Raises :class:`UsageProblem` and :class:`JobError`.
    """
    folder = _folder(tokenizer, facts, sources, matrix)
    shown = tokenizer or str(facts.value("model.name"))
    found = tokenizer_in(folder, shown)
    try:
        measured = measure(os.path.join(sources.folder(), data), data, found, place)
    except DataError as error:
        raise JobError(said_by(error)) from None
    cutoff = facts.number("recipe.max_length")
    section = summary(
        measured,
        path=data,
        tokenizer=shown,
        template=found.template is not None,
        cutoff=int(cutoff) if cutoff is not None and cutoff >= 1 else None,
        batch=batch_of(facts, training=True),
    )
    length = fed_length(section, facts.value("recipe.packing") is True)
    return section, [] if length is None else [Fact("recipe.max_length", length, f"--data {data}", "given")]


def _folder(tokenizer: str | None, facts: FactSet, sources: Sources, matrix: Matrix) -> str:
    if tokenizer is None:
        folder = facts.text("model.path")
        if folder is None:
            raise UsageProblem("--data is counted with a tokenizer: give --tokenizer DIR, or --model DIR that has one")
        return os.path.join(sources.folder(), folder)
    aliases = matrix.part("families", "organisations")
    try:
        found = resolve(tokenizer, cwd=sources.folder(), environ=sources.environ, aliases=aliases, option="--tokenizer")
    except ObservationError as error:
        raise UsageProblem(said_by(error)) from None
    if found.folder is None:
        raise JobError("--tokenizer {}: {}", tokenizer, found.missing)
    return found.folder
