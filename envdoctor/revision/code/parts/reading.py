"""Python files of snapshots, read and parsed in bounded children; what cannot be parsed is unread, with the reason."""

import io
import tokenize
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.code.parts.records import FileCode, from_json
from envdoctor.revision.comparer import parted
from envdoctor.sandbox.asking import Limits, Problem, ask
from envdoctor.text.message import Message

#: The largest modeling file of transformers has 0.3 MiB.
MAX_FILE = 1 << 20
MAX_FILES = 200
MAX_TOTAL = 16 << 20
_CHILD = "envdoctor.revision.code.parts.tree:read_code"
_LIMITS = Limits(seconds=10.0, mib=512, output=64 << 20, in_all=20.0)
#: Seconds after which the waiting looks whether it was interrupted.
_A_MOMENT = 0.2
_CHILDREN = 2


class Source(NamedTuple):
    """One file's text as bytes; its syntax tree comes later."""

    path: str
    content: bytes

    @property
    def lines(self) -> list[str]:
        """The text, line by line as Python counts them; what cannot be decoded is replaced."""
        try:
            coding, _ = tokenize.detect_encoding(io.BytesIO(self.content).readline)
            text = self.content.decode(coding, "replace")
        except (SyntaxError, LookupError, ValueError):
            text = self.content.decode("utf-8", "replace")
        return io.StringIO(text, newline=None).read().split("\n")


class NotPython(Unread):
    """A file that has a syntax error: whoever loads it fails as well."""


def read_sources(snapshot: Snapshot, paths: Sequence[str]) -> tuple[tuple[Source, ...], tuple[Unread, ...]]:
    """The files' contents within the limits of size and number; the others with the reason."""
    return parted(_read(snapshot, paths))


def _read(snapshot: Snapshot, paths: Sequence[str]) -> Iterator[Source | Unread]:
    count = total = 0
    for path in paths:
        if count >= MAX_FILES or total + snapshot.files[path].size > MAX_TOTAL:
            reason = Message("only {} Python files and {} MiB of them are compared", MAX_FILES, MAX_TOTAL >> 20)
            yield Unread(path, reason)
            continue
        content = snapshot.read(path, MAX_FILE)
        if isinstance(content, Unread):
            yield content
            continue
        count, total = count + 1, total + len(content)
        yield Source(path, content)


def parse(sources: Sequence[Source]) -> list[FileCode | Unread]:
    """What is in each of the files, in their order. Nothing of them is executed or imported."""
    import threading
    from concurrent.futures import ThreadPoolExecutor, wait

    if not sources:
        return []
    half = (len(sources) + 1) // _CHILDREN
    batches = [batch for batch in (sources[:half], sources[half:]) if batch]
    stop = threading.Event()
    with ThreadPoolExecutor(_CHILDREN) as pool:
        try:
            waiting = [pool.submit(_parse_batch, batch, until=stop.is_set) for batch in batches]
            while wait(waiting, _A_MOMENT).not_done:
                pass  # an interrupt that comes just before an endless wait would be lost in it
            return [result for future in waiting for result in future.result()]
        except BaseException:  # an interrupt: the pool waits for what runs
            stop.set()
            raise


def _parse_batch(sources: Sequence[Source], until: Callable[[], bool]) -> list[FileCode | Unread]:
    answers = ask(_CHILD, [({}, content) for _, content in sources], _LIMITS, until=until)
    return [
        (NotPython if answer.kind == "SyntaxError" else Unread)(source.path, answer.said())
        if isinstance(answer, Problem)
        else from_json(answer)
        for source, answer in zip(sources, answers, strict=True)
    ]
