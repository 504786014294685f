"""Python files of snapshots, read and parsed in bounded children; what cannot be parsed is unread, with the reason."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.code.parts.records import FileCode, from_json
from envdoctor.sandbox.child import own_python, run_child
from envdoctor.sandbox.frames import framed

#: The largest modeling file of transformers has 0.3 MiB.
MAX_FILE = 1 << 20
MAX_FILES = 200
MAX_TOTAL = 16 << 20
_SECONDS = 10.0
_SECONDS_IN_ALL = 20.0
_MEMORY_MIB = 512
_OUTPUT = 64 << 20
#: Seconds after which the waiting looks whether it was interrupted.
_A_MOMENT = 0.2
_CHILDREN = 2

_PROBLEMS = {
    "large": "it holds too much code to be compared",
    "deep": "it is nested too deeply to be parsed",
    "memory": "it is nested too deeply, or is too large, to be parsed",
    "text": "it is not Python source text",
}
_ENDINGS = {
    "timeout": "it takes too long to be parsed",
    "memory": "it needs too much memory to be parsed",
    "crash": "it makes Python's own parser crash",
    "output-limit": "it defines too much to be compared",
}


class Source(NamedTuple):
    """One file's text as bytes; its syntax tree comes later."""

    path: str
    content: bytes


def read_sources(snapshot: Snapshot, paths: Sequence[str]) -> tuple[list[Source], list[Unread]]:
    """The files' contents within the limits of size and number; the others with the reason."""
    sources: list[Source] = []
    unread: list[Unread] = []
    total = 0
    for path in paths:
        size = snapshot.files[path].size
        if len(sources) >= MAX_FILES or total + size > MAX_TOTAL:
            unread.append(Unread(path, f"only {MAX_FILES} Python files and {MAX_TOTAL >> 20} MiB of them are compared"))
            continue
        content = snapshot.read(path, MAX_FILE)
        if isinstance(content, Unread):
            unread.append(content)
            continue
        total += len(content)
        sources.append(Source(path, content))
    return sources, unread


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
    """Files in one child; where one ends it, a new child goes on behind that file, but not when ``until`` says yes."""
    import time

    deadline = time.monotonic() + _SECONDS_IN_ALL
    results: list[FileCode | Unread] = []
    while (waiting := sources[len(results) :]) and (left := deadline - time.monotonic()) > 0 and not until():
        child = run_child(
            own_python("envdoctor.revision.code.parts.tree"),
            framed(source.content for source in waiting),
            seconds=min(_SECONDS, left),
            memory_mib=_MEMORY_MIB,
            output_limit=_OUTPUT,
            until=lambda used: until(),
        )
        lines = child.stdout.split(b"\n")[:-1]
        results += [_answer(source.path, line) for source, line in zip(waiting, lines, strict=False)]
        if len(lines) < len(waiting):
            reason = _ENDINGS.get(child.status, "the child that parses it failed")
            results.append(Unread(waiting[len(lines)].path, reason))
    return [*results, *(Unread(source.path, "other files took all the time for parsing") for source in waiting)]


def _answer(path: str, line: bytes) -> FileCode | Unread:
    document = json.loads(line)
    if isinstance(document, list):
        return from_json(document)
    if document["problem"] == "syntax":
        return Unread(path, f"it is not Python that this interpreter can parse (line {document['line']})")
    return Unread(path, _PROBLEMS[document["problem"]])
