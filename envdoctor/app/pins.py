"""Facts about a model's files compared with their pins in envdoctor-pins.json."""

import os
from collections.abc import Iterable, Mapping

from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.model.names import spellings
from envdoctor.report.report import Notice
from envdoctor.revision.hub.online import Access
from envdoctor.revision.hub.opening import open_snapshot
from envdoctor.revision.hub.snapshot import PINS, Pin, PinError, Snapshot, SnapshotError, compare_with_pin, read_pins
from envdoctor.system.message import Message, listed, said_by


def pinned(path: str | None, names: Iterable[str], aliases: Mapping[str, str]) -> Pin | None:
    """Return the pin that a file has for a model of any of these names; without a name, its only pin, if it has one.
    Raises :class:`UsageProblem`."""
    if path is None:
        return None
    with told_as(UsageProblem, PinError):
        pins = {name.lower(): pin for name, pin in read_pins(path).items()}
    spelled_names = [spelled.lower() for name in names for spelled in spellings(name, aliases)]
    if not spelled_names and len(pins) == 1:
        return next(iter(pins.values()))
    return next((pins[name] for name in spelled_names if name in pins), None)


def pin_facts(pin: Pin | None, snapshot: Snapshot | None) -> list[Fact]:
    """Return ``pin.*``: unknown if the file does not pin this model or there are no files to compare."""
    values: tuple[Value, Value, Value]
    if pin is None:
        unknown = Unknown(Message("{} pins no model of this name", PINS))
        values = (unknown, unknown, unknown)
    elif snapshot is None:
        unknown = Unknown(Message("no files of the model are at hand to compare with the pinned ones"))
        values = (pin.revision or ABSENT, unknown, unknown)
    else:
        state = compare_with_pin(pin, snapshot)
        answer: Value = state.state or ABSENT
        if not state.state:
            files, reason = listed((part.path for part in state.unsure), 1), state.unsure[0].reason
            answer = Unknown(Message("{} could not be compared with the pin: {}", files, reason))
        values = (pin.revision or ABSENT, answer, tuple(state.differing))
    pairs = zip(("revision", "state", "files"), values, strict=True)
    return [Fact(f"pin.{name}", value, PINS, "pin") for name, value in pairs]


def add_pin(facts: FactSet, path: str, model: str, access: Access) -> list[Notice]:
    """Add ``pin.*`` of the model asked for as ``model``; return a notice if its files are not here to compare. Raises
    :class:`UsageProblem`."""
    repo, folder = facts.text("model.repo"), facts.text("model.path")
    aliases = access.aliases
    if repo is not None:
        pin = pinned(path, [repo], aliases)
    else:
        names = [model, os.path.basename(folder.rstrip("/"))] if folder is not None else [model]
        pin = pinned(path, names, aliases) or pinned(path, [], aliases)
    snapshot, reason = None, Message("no files of it are at hand to compare")
    if folder is not None and pin is not None:
        try:
            snapshot = open_snapshot(folder, None, access)
        except SnapshotError as error:
            reason = said_by(error)
    facts.update(pin_facts(pin, snapshot))
    if pin is None:
        return [Notice("warning", Message("{} pins other models, not {}: its files were not compared", PINS, model))]
    return [] if snapshot else [Notice("note", Message("{} pins {}, and {}", PINS, pin.repo, reason))]
