"""The ledger as it is written: histories (what was so in which releases) as lines, and compressed texts."""

from __future__ import annotations

import lzma
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envdoctor.matrix.ledger import PACKED, letters, shared_texts

__all__ = ["compressed", "history", "write_packed"]

#: For plain text: without alignment.
_FILTER = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0, "nice_len": 273}
#: A subject that is there without items.
_BARE = ""


def history(versions: Sequence[str], found: Sequence[Mapping[str, Collection[str]]]) -> Iterator[str]:
    """Yield the lines of a section: ``found`` has for each of the rising ``versions`` the items by subject."""
    places: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, subjects in enumerate(found):
        for subject, items in subjects.items():
            for item in items or (_BARE,):
                places[subject][item].append(place)
    for subject in sorted(places):
        spans: dict[tuple[int, int], list[str]] = defaultdict(list)
        for item, where in places[subject].items():
            for span in _runs(where):
                spans[span].append(item)
        for (since, until), items in sorted(spans.items()):
            end = "" if until == len(versions) - 1 else letters(until)
            yield "\t".join([subject, f"{letters(since)}..{end}", *sorted(filter(None, items))])


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of the runs of neighbours among rising numbers."""
    first = last = None
    for place in places:
        if last is not None and first is not None and place != last + 1:
            yield first, last
            first = place
        first = place if first is None else first
        last = place
    if first is not None and last is not None:
        yield first, last


def compressed(text: bytes) -> bytes:
    """Return the text as a .xz file has it."""
    return lzma.compress(text, check=lzma.CHECK_CRC32, filters=[_FILTER])


def write_packed(folder: Path, new: Mapping[str, bytes], kept: Collection[str]) -> None:
    """Write the shared file of a ledger: the ``new`` texts by package, and those of ``kept`` that it has already. The
    packages have no file of their own any more."""
    path = folder / PACKED
    before = shared_texts(path.read_bytes()) if path.exists() else {}
    found = {**{name: text for name, text in before.items() if name in kept}, **new}
    names = sorted(found)
    data = "\t".join(names).encode() + b"\n" + compressed(b"".join(found[name] for name in names))
    path.write_bytes(data)
    for name in names:
        (folder / f"{name}.txt").unlink(missing_ok=True)
