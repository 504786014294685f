"""``envdoctor-pins.json``: the revision of each model that a project trains with, and the oid of every file of it."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.revision.hub.snapshot import FileEntry, Snapshot, Unread, oid_of_content
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, MessageError

PINS = "envdoctor-pins.json"
SCHEMA = "envdoctor.pins/1"
_LARGEST = 64 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_LOADED = (*_WEIGHTS, ".json", ".jinja", ".model", ".txt")
_OF_A_RUN = (
    *("optimizer", "scheduler", "rng_state", "training_args", "trainer_state"),
    *("README", "LICENSE", "requirements"),
)


class PinError(MessageError, ValueError):
    """The file of pins cannot be used; the message names it and what is wrong."""


class Pin(NamedTuple):
    """What is pinned for one model: its name, the commit, the oid of each file."""

    repo: str
    revision: str | None
    files: Mapping[str, str]


def find_pins(start: str) -> str | None:
    """Return the nearest path of pins from a folder up to the project's root (with .git); it may not be a file."""
    for folder in (Path(start), *Path(start).parents):
        if os.path.lexists(folder / PINS):
            return str(folder / PINS)
        if os.path.exists(folder / ".git"):
            return None
    return None


def read_pins(path: str) -> dict[str, Pin]:
    """Return the pinned models by name; empty if the file does not exist. Raises :class:`PinError`."""
    try:
        document = json.loads(Files().whole(path, _LARGEST))
    except OSError as error:
        if not os.path.lexists(path):
            return {}
        raise PinError("{}: cannot be read: {}", path, because_of(error)) from None
    except (ValueError, RecursionError) as error:
        raise PinError("{}: not JSON: {}", path, error) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise PinError('{}: "schema": "{}" is expected; `envdoctor pin REPO` writes it', path, SCHEMA)
    models = document.get("models", {})
    if not isinstance(models, dict):
        raise PinError("{}: models: a table is expected", path)
    return {name: _pin(path, name, entry) for name, entry in models.items()}


def _pin(path: str, name: str, entry: Any) -> Pin:
    if not isinstance(entry, dict):
        raise PinError("{}: {}: a table is expected", path, name)
    files, revision = entry.get("files", {}), entry.get("revision")
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        raise PinError("{}: {}: files: a table of texts is expected", path, name)
    if revision is not None and not isinstance(revision, str):
        raise PinError("{}: {}: revision: a text is expected", path, name)
    return Pin(name, revision, files)


def pin_of(snapshot: Snapshot) -> tuple[Pin, list[Unread]]:
    """Return the pin of a snapshot, by its list alone, and the files whose content has no name."""
    files = {path: entry.oid for path, entry in sorted(snapshot.files.items()) if entry.oid is not None}
    nameless = [_not_read(entry) for entry in snapshot.files.values() if entry.oid is None]
    return Pin(snapshot.repo or snapshot.asked, snapshot.revision, files), [*snapshot.refused, *nameless]


def _not_read(entry: FileEntry) -> Unread:
    return Unread(entry.path, Message("its {} bytes were not read (--hash reads large files)", f"{entry.size:,}"))


def pins_text(pins: Iterable[Pin]) -> str:
    """Return the text of a file with these pins, sorted, so that a change shows as a short difference."""
    models: dict[str, dict[str, Any]] = {}
    for pin in sorted(pins, key=lambda pin: pin.repo):
        revision = {"revision": pin.revision} if pin.revision else {}
        models[pin.repo] = {**revision, "files": dict(sorted(pin.files.items()))}
    return json.dumps({"schema": SCHEMA, "models": models}, indent=1, ensure_ascii=True) + "\n"


class PinState(NamedTuple):
    """A snapshot beside its pin: ``state`` is same, changed or moved (another commit), None when it cannot be told;
    ``differing`` are the files that differ, ``unsure`` the files that may differ, with the reason."""

    state: str | None
    differing: list[str]
    unsure: list[Unread]


def compare_with_pin(pin: Pin, snapshot: Snapshot) -> PinState:
    """Compare pinned files, and look for added or removed code. Missing weights may not have been downloaded."""
    differing = [path for path in snapshot.files if path not in pin.files and _is_loaded(path)]
    unsure = {part.path: part for part in snapshot.refused if part.path in pin.files or _is_loaded(part.path)}
    for path, pinned in pin.files.items():
        entry = snapshot.files.get(path)
        if entry is None:
            if path in unsure or not _is_loaded(path) or path.endswith(_WEIGHTS):
                continue
            if snapshot.complete:
                differing.append(path)
            else:
                unsure[path] = Unread(path, Message("it was not downloaded"))
            continue
        oid, kind = entry.oid, pinned.partition(":")[0]
        if oid is not None and not oid.startswith(f"{kind}:"):  # a folder does not say which files the Hub has in LFS
            content = snapshot.read(path, _LARGEST)
            oid = None if isinstance(content, Unread) else oid_of_content(kind, content)
        if oid is None:
            unsure[path] = _not_read(entry)
        elif oid != pinned:
            differing.append(path)
    state = "changed" if differing else None if unsure else "same"
    if snapshot.revision and pin.revision and snapshot.revision != pin.revision:
        state = "moved"
    return PinState(state, sorted(differing), [unsure[path] for path in sorted(unsure)])


def _is_loaded(path: str) -> bool:
    """Return whether a file of this name is loaded: code, or what lies beside config.json but no state of a run."""
    beside = "/" not in path and path.endswith(_LOADED) and not path.startswith(_OF_A_RUN)
    return beside or path.endswith(".py")
