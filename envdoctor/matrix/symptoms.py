"""Symptoms of rules: what people see in a log when the rule is the cause.

A symptom is a list of ``lines``: each is a text that stands in one line of the log, ``*`` for anything between its
pieces; case, quotes and blanks do not count. All of them must be there. A long line may go on in the next one, because
terminals and mail break them. Nothing is a regular expression, so a log takes time in proportion to its length whatever
stands in it. With ``raised_in``, a package, the last file of a traceback above it is one of that package.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

#: Letters and digits that a symptom must have in all, and each of its lines.
_LEAST, _LEAST_LINE = 10, 4
#: Lines that hold the first piece of a text and are looked at to the end.
_LOOKS = 200
#: Characters from which on a line may have been broken: its text may go on in the next one.
_WRAPPED = 50


class Log(NamedTuple):
    """A log in lower case, its lines joined by blanks, and where each of them begins."""

    text: str
    starts: Sequence[int]

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Log":
        """Build it from the lines as they were written."""
        lowered = [_plain(line) for line in lines]
        return cls(" ".join(lowered), [0, *accumulate(len(line) + 1 for line in lowered)])


class Seen(NamedTuple):
    """A symptom that was found: the place of its last line (from 0), and how much it says (letters)."""

    place: int
    letters: int


def seen_in(log: Log, symptoms: Iterable[Mapping[str, Any]]) -> Seen | None:
    """Return the symptom that says most among those in the log; None if the log has none."""
    found: list[Seen] = []
    for symptom in symptoms:
        places = [_last(log, _plain(text).split("*")) for text in symptom["lines"]]
        place = max((place for place in places if place is not None), default=0)
        if None not in places and _raised_in(symptom.get("raised_in", ""), log, log.starts[place]):
            found.append(Seen(place, letters(symptom)))
    return max(found, key=lambda one: one.letters, default=None)


def _raised_in(package: str, log: Log, before: int) -> bool:
    frame = log.text.rfind('file "', 0, before) if package else -1
    file = log.text[frame:before].partition('", line')[0].replace("\\", "/")
    return frame < 0 or f"/{package}/" in file


def letters(symptom: Mapping[str, Any]) -> int:
    """Return the letters and digits of a symptom."""
    return sum(char.isalnum() for text in symptom["lines"] for char in text)


def faults_of(symptom: Mapping[str, Any], ordinary: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with a symptom: ``ordinary`` are lines of healthy runs."""
    if letters(symptom) < _LEAST or any(sum(map(str.isalnum, text)) < _LEAST_LINE for text in symptom["lines"]):
        yield f"{symptom['lines']}: fewer than {_LEAST} letters (a line: {_LEAST_LINE}) may stand in any log"
    if any(not piece.strip() for text in symptom["lines"] for piece in text.split("*")):
        yield f"{symptom['lines']}: * stands between two texts"
    elif seen_in(Log.of(symptom["seen"].split("\n")), [symptom]) is None:
        yield f"{symptom['lines']}: not in `seen`"
    elif seen_in(Log.of(ordinary), [symptom]) is not None:
        yield f"{symptom['lines']}: stands in logs of healthy runs too (table ordinary-log)"


def _plain(text: str) -> str:
    """Return lower case with single blanks and one kind of quote: forums bend quotes, and Markdown eats backticks."""
    return " ".join(text.lower().replace("`", "'").split())


def _last(log: Log, pieces: Sequence[str]) -> int | None:
    """Return the index of the last line in which the pieces stand one behind the other."""
    end, starts = len(log.text), log.starts
    for _ in range(_LOOKS):
        start = log.text.rfind(pieces[0], 0, end)
        if start < 0:
            return None
        number = bisect_right(starts, start) - 1
        wrapped = starts[number + 1] - starts[number] > _WRAPPED
        last = min(number + 1 + wrapped, len(starts) - 1)
        if _in_order(log.text[starts[number] : starts[last] - 1], pieces):
            return number
        end = start if wrapped else starts[number]
    return None


def _in_order(line: str, pieces: Sequence[str]) -> bool:
    """Return whether the pieces follow one another. The first begins a word: SFTTrainer does not count as Trainer."""
    place = line.find(pieces[0])
    while place > 0 and pieces[0][0].isalnum() and line[place - 1].isalnum():
        place = line.find(pieces[0], place + 1)
    for piece in pieces if place >= 0 else ():
        place = line.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place >= 0
