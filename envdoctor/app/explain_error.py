"""``envdoctor explain --error``: what is known of an error message, for given versions or for none."""

from __future__ import annotations

import sys
from typing import NamedTuple

from envdoctor.answers.answer import Answer
from envdoctor.answers.answering import answer_to
from envdoctor.answers.situation import Situation
from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts
from envdoctor.facts.factset import FactSet
from envdoctor.knowledge.matrix import Matrix
from envdoctor.tracebacks.reading import read_error

__all__ = ["Explained", "explain_error", "text_of_option"]

#: A log of a long run on many machines; what is behind it decides anyway.
_LARGEST = 64 * 1024 * 1024


class Explained(NamedTuple):
    """The answer, and the environment whose versions it is for; ``gathered`` is None when there is none."""

    answer: Answer
    gathered: Gathered | None

    @property
    def exit_code(self) -> int:
        """0 when something is known of the error; 3 when nothing is: the job was to answer it."""
        return 0 if self.answer.known else 3


def explain_error(text: str, matrix: Matrix, sources: Sources | None = None) -> Explained:
    """Answer a message or a traceback. ``sources`` names the environment; None answers for no versions in particular.

    GPUs and models are not looked at. Raises :class:`UsageProblem` for a text without a word, and what
    :func:`~envdoctor.app.facts.collect_facts` raises.
    """
    if not text.strip():
        raise UsageProblem("--error: there is no text: give the message or the traceback, or - for standard input")
    reading = read_error(text)
    if reading.failure is None:
        return Explained(answer_to(reading, Situation(matrix, FactSet())), None)
    gathered = collect_facts(sources._replace(gpu=False, model=None), matrix) if sources is not None else None
    facts = gathered.facts if gathered is not None else FactSet()
    return Explained(answer_to(reading, Situation(matrix, facts)), gathered)


def text_of_option(value: str) -> str:
    """The text that ``--error`` gives: its value, or for ``-`` standard input. Raises :class:`JobError`."""
    if value != "-":
        return value
    try:
        data = sys.stdin.buffer.read(_LARGEST + 1)
    except OSError as error:
        raise JobError(f"--error -: standard input cannot be read: {error.strerror or error}") from None
    if len(data) > _LARGEST:
        raise JobError(f"--error -: larger than {_LARGEST // 1024 // 1024} MiB: give its end, where the error stands")
    return data.decode("utf-8", "replace")
