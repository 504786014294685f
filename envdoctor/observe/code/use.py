"""The fact ``use``: what the user's own scripts and notebooks take from other distributions.

Bounded children parse them (``reading/read_uses.py``), and look up what they use in the files of an environment on disk
(``reading/lacking.py``); nothing is imported or run. What could not be read is named: a list that may lack uses is
incomplete.
"""

from collections.abc import Mapping
from typing import Any

from envdoctor.facts.values import Fact, Records, Value
from envdoctor.observe.code.reading.code_files import CodeFile, UnreadCode, find_code
from envdoctor.observe.code.reading.reading_uses import CELL, answers, completed, items
from envdoctor.observe.model.reading.names import printable
from envdoctor.observe.request import Request
from envdoctor.system.files import Budget, Files, Spent, because_of
from envdoctor.system.message import Message

KEYS = ("use", "code.files", "code_unread")

_MAX_FILE = {".py": 2 << 20, ".ipynb": 32 << 20}
_MAX_TOTAL = 128 << 20
_MOST = 5000


def observe(request: Request) -> list[Fact]:
    """``use``, one item for each thing that is used in one way, with the first places; ``code.files``, what was read;
    ``code_unread``, what was not, each with the reason."""
    known = {row["module"] for row in request.rows("stack-modules", "module")}
    files = Files(budget=Budget(seconds=10.0, size=2 * _MAX_TOTAL))
    chosen, unread = find_code(request.code, request.cwd, files, known)
    contents: list[tuple[CodeFile, bytes]] = []
    for file in chosen:
        content = _content(file, files, sum(len(content) for _, content in contents))
        if isinstance(content, Message):
            unread.append(file.unread(content))
        else:
            contents.append((file, content))
    read: list[tuple[CodeFile, Mapping[str, Any]]] = []
    for file, answer in answers(contents):
        if isinstance(answer, Message):
            unread.append(file.unread(answer))
            continue
        read.append((file, answer))
        unread += [file.unread(CELL, place) for place in answer["unread"]]
    uses = tuple(items(read))
    if len(uses) > _MOST:
        unread.append(
            UnreadCode(printable(", ".join(request.code)), Message("it uses {} things; {} are told", len(uses), _MOST))
        )
    why = Message("{}: {}", unread[0].place, unread[0].reason) if unread else None
    values: tuple[Value, ...] = (
        Records(completed(uses[:_MOST], request), why),
        tuple(file.shown for file, _ in read),
        Records(tuple(one._asdict() for one in unread)),
    )
    origin = ", ".join(printable(path) for path in request.code)
    return [Fact(key, value, origin, "code") for key, value in zip(KEYS, values, strict=True)]


def _content(file: CodeFile, files: Files, before: int) -> bytes | Message:
    """The content of a file, or a clause about why it was not read."""
    limit = _MAX_FILE[".ipynb" if file.path.endswith(".ipynb") else ".py"]
    try:
        content = files.whole(file.path, limit)
    except (OSError, Spent) as error:
        return because_of(error)
    fits = before + len(content) <= _MAX_TOTAL
    return content if fits else Message("more than {} MiB of code together", _MAX_TOTAL >> 20)
