"""``envdoctor explain --error`` and ``--log``: what is known of an error, for given versions or for none."""

from pathlib import Path
from typing import NamedTuple

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.tracebacks import numbered, read_error
from envdoctor.remedy.answer import Answer
from envdoctor.remedy.answering import answer_to
from envdoctor.remedy.question import Situation
from envdoctor.remedy.suspects import suspects_in
from envdoctor.system.documents import read_named
from envdoctor.system.files import because_of

#: A log of a long run on many machines; what is behind it decides anyway.
_LARGEST = 64 * 1024 * 1024


class Explained(NamedTuple):
    """The answer, and the environment whose versions it is for; ``gathered`` is None when there is none."""

    answer: Answer
    gathered: Gathered | None

    @property
    def exit_code(self) -> int:
        """Return 0 if something is known of the error, else 3."""
        return 0 if self.answer.known else 3


def explain_error(text: str, matrix: Matrix, sources: Sources | None = None) -> Explained:
    """Answer a message or a traceback. ``sources`` names the environment; None answers for no versions in particular.
    Without ``sources`` what the text itself says of its environment counts. The model is not looked at. Raises
    :class:`UsageProblem` for a text without a word, and what :func:`~envdoctor.app.facts.collect_facts` raises."""
    if not text.strip():
        raise UsageProblem("there is no text: give the message or the traceback, or - for standard input")
    reading = read_error(text)
    first, lines = numbered(text)
    gathered = collect_facts(sources._replace(model=None), matrix) if sources is not None else None
    if gathered is not None:
        facts = gathered.facts
    else:  # what a log says of the environment that wrote it
        from envdoctor.judge.derivations import derive
        from envdoctor.observe.documents.reports.report_file import report_facts

        facts = report_facts(text, matrix, "log").facts
        if list(facts):
            derive(facts, matrix, None)
    situation = Situation(matrix, facts)
    answer = answer_to(reading, situation)
    return Explained(answer._replace(suspects=suspects_in(situation, lines, first)), gathered)


def text_of_option(option: str, path: str) -> str:
    """Return the text of a file, or for ``-`` of standard input. Raises :class:`JobError`."""
    try:
        data = read_named(Path(path), path, _LARGEST)
    except (OSError, ValueError) as error:
        raise JobError("{} {}: cannot be read: {}", option, path, because_of(error)) from None
    if data is None:
        limit = _LARGEST // 1024 // 1024
        raise JobError("{} {}: larger than {} MiB: give its end, where the error stands", option, path, limit)
    return data.decode("utf-8", "replace")
