"""``envdoctor pin``: write down which files of a model this project trains with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Sources
from envdoctor.matrix.matrix import load_matrix
from envdoctor.revision.hub.opening import open_snapshot
from envdoctor.revision.hub.pins import PINS, Pin, PinError, find_pins, pin_of, pins_text, read_pins
from envdoctor.revision.hub.snapshot import SnapshotError


class _Pinned(NamedTuple):
    """The new file of pins: its path and its text, and the pin of the model."""

    path: Path
    text: str
    pin: Pin


def pin(
    repo: str,
    revision: str | None = None,
    *,
    sources: Sources | None = None,
    offline: bool = False,
    timeout: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> _Pinned:
    """Return the text of the working directory's file of pins with this model in it; write nothing. One request lists
    the oids. Raises :class:`UsageProblem` and :class:`JobError`, the latter also if a file of the snapshot has no oid:
    a pin with holes would later call a change unchanged."""
    sources = sources or Sources()
    path = find_pins(sources.folder()) or os.path.join(sources.folder(), PINS)
    access = sources.access(load_matrix(), offline=offline, timeout=timeout, notice=progress)
    with told_as(UsageProblem, PinError), told_as(None, SnapshotError):
        pins = read_pins(path)
        snapshot = open_snapshot(repo, revision, access)
    entry, unread = pin_of(snapshot)
    if unread:
        raise JobError("{}: {} cannot be pinned: {}", snapshot.label, unread[0].path, unread[0].reason)
    pins[entry.repo] = entry
    return _Pinned(Path(path), pins_text(pins.values()), entry)
