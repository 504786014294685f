"""Symptoms of rules: what people see in a log when the rule is the cause.

A symptom is a list of ``lines``: each is a text that stands in one line of the log, ``*`` for anything between its
pieces; case, quotes and blanks do not count; a 0 at its end is no 0.5. All of them must be there. A long line may go on
in the next one, because terminals and mail break them. Nothing is a regular expression, so a log takes time in
proportion to its length whatever stands in it. With ``raised_in``, a package, the last file of a traceback above it is
one of that package. ``{model.type}`` stands for one word, which the log tells of that fact. A symptom of a ``title``
stands in the first line of the text, where people say what they ask about, and counts nowhere else.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

#: Letters and digits that a symptom must have in all, and each of its lines.
_LEAST, _LEAST_LINE = 10, 4
#: Lines that hold the first piece of a text and are looked at to the end.
_LOOKS = 200
#: The open parts of a symptom between its pieces: anything, or the word for a fact.
_OPEN = re.compile(r"\*|\{[\w.]+\}")
#: Characters of a line in which such a word is looked for.
_LONGEST = 2_000
#: What makes another number of a 0 at the end of a text: 0.69.
_NUMBER = re.compile(r"(?<=[^\d.]0)[\d.]{0,9}[1-9]")
#: A line of more characters may have been broken: its text may go on in the next one.
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
    """A symptom in a log: the place of its most telling line (from 0), its number of letters, and keys of facts with
    the words of the log for them. ``title``: it is one of a title."""

    place: int
    letters: int
    told: tuple[tuple[str, str], ...] = ()
    title: bool = False


def seen_in(log: Log, symptoms: Iterable[Mapping[str, Any]]) -> Seen | None:
    """Return the symptom of the log that has most letters; None if the log has none."""
    matches: list[Seen] = []
    whole, title = log, Log(log.text[: log.starts[1]], log.starts[:2])
    for symptom in symptoms:
        log = title if symptom.get("title") else whole
        texts = list(map(_plain, symptom["lines"]))
        places = [place for text in texts if (place := _last(log, _OPEN.split(text))) is not None]
        words = [word for text, place in zip(texts, places, strict=False) if (word := _word_of(log, place, text))]
        is_whole = len(places) == len(texts) and len(words) == sum("{" in text for text in texts)
        if is_whole and _raised_in(symptom.get("raised_in", ""), log, log.starts[max(places)]):
            says_most = max(zip((sum(map(str.isalnum, text)) for text in texts), places, strict=True))
            matches.append(Seen(says_most[1], letters(symptom), tuple(words), log is title))
    return max(matches, key=lambda match: match.letters, default=None)


def _word_of(log: Log, place: int, text: str) -> tuple[str, str] | None:
    """Return the key of a fact that a text names, and the word of the log for it, in quotes or not."""
    before, _, rest = text.partition("{")
    key, _, after = rest.partition("}")
    start = log.starts[place]
    pattern = rf"{re.escape(before.rpartition('*')[2])}'?([\w.-]{{1,80}})'?{re.escape(after.partition('*')[0])}"
    word = re.search(pattern, log.text[start : start + _LONGEST]) if key else None
    return (key, word[1]) if word else None


def _raised_in(package: str, log: Log, before: int) -> bool:
    frame = log.text.rfind('file "', 0, before) if package else -1
    file = log.text[frame:before].partition('", line')[0].replace("\\", "/")
    return frame < 0 or f"/{package}/" in file


def letters(symptom: Mapping[str, Any]) -> int:
    """Return the number of letters and digits of a symptom, without the parts that it leaves open."""
    return sum(map(str.isalnum, "".join(_OPEN.sub("", text) for text in symptom["lines"])))


def faults_of(symptom: Mapping[str, Any], ordinary: Sequence[str]) -> Iterator[str]:
    """Yield the faults of a symptom: ``ordinary`` are lines of healthy runs."""
    # Its word is looked up; and a title is short.
    is_open = any("{" in text for text in symptom["lines"]) or symptom.get("title", False)
    if (letters(symptom) < _LEAST and not is_open) or any(
        sum(map(str.isalnum, text)) < _LEAST_LINE for text in symptom["lines"]
    ):
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
    """Return whether the pieces follow one another. The first begins a word: SFTTrainer does not count as Trainer, but
    Chinese is written without blanks."""
    place, first = line.find(pieces[0]), pieces[0][0]
    while place > 0 and f"{line[place - 1]}{first}".isalnum() and f"{line[place - 1]}{first}".isascii():
        place = line.find(pieces[0], place + 1)
    for piece in pieces if place >= 0 else ():
        place = line.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place >= 0 and not _NUMBER.match(line, place)
