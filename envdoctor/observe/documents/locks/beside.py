"""The fact ``beside``: what Python files in the folder of a list take of packages that code may do without."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records
from envdoctor.knowledge.entry_statements import parse_statement
from envdoctor.observe.code.reading.code_files import CodeFile, find_code
from envdoctor.observe.code.reading.reading_uses import answers, items
from envdoctor.observe.errors import ObservationError
from envdoctor.text.files import Budget, Files, Spent

_LARGEST, _TOGETHER = 1 << 20, 16 << 20
#: Files that name one of the packages; more are not parsed.
_MOST_FILES = 60
_SECONDS, _STEPS = 2.0, 50_000


def beside(path: str, facts: FactSet, rows: Callable[..., Sequence[Any]]) -> Iterator[Fact]:
    """Yield the fact for the list at a path; none where nothing is listed that code may do without, or that runs with
    what is not there, or where no file there takes a package of the training stack. Only files that name such a package
    are parsed, by a bounded child."""
    table = rows("entry-statements")
    listed = [row for row in table if facts.text(f"pkg.{row['name']}") is not None]
    if not facts.words("environment.lacks") and not any(row.get("choice") for row in listed):
        return
    tops = {parse_statement(statement)[0].partition(".")[0] for row in listed for statement in row["statements"]}
    names = re.compile(rb"\b(?:" + "|".join(sorted(tops)).encode() + rb")\b")
    folder = os.path.dirname(path) or "."
    files = Files(budget=Budget(seconds=_SECONDS, size=_TOGETHER, steps=_STEPS))
    try:
        found = list(_named(files, find_code([folder], folder, files, tops).files, names))
    except (ObservationError, Spent):
        return
    read = [(file, answer) for file, answer in answers(found, seconds=5.0) if not isinstance(answer, str)]
    taken = [one for one in items(read) if one["kind"] in _KINDS and str(one["module"]).partition(".")[0] in tops]
    if taken:
        uses = dict.fromkeys((one["module"], one["name"], one["guarded"]) for one in taken)
        told = tuple(dict(zip(("module", "name", "guarded"), use, strict=True)) for use in uses)
        yield Fact("beside", Records(told), folder, "code")


_KINDS = ("module", "name", "attribute")


def _named(files: Files, code: Sequence[CodeFile], names: re.Pattern[bytes]) -> Iterator[tuple[CodeFile, bytes]]:
    count = 0
    for file in code:
        try:
            content = files.whole(file.path, _LARGEST)
        except OSError:
            continue
        if count < _MOST_FILES and not file.path.endswith("setup.py") and names.search(content):
            count += 1
            yield file, content
