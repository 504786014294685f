"""The contract of a snapshot: one state of a model repository, whatever it is read from; which names its files may have
(a hostile list names ``../../.ssh/id_rsa``); and object ids, read from texts and computed from bytes. And
``envdoctor-pins.json``: the revision of each model that a project trains with, and the oid of every file of it."""

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from envdoctor.observe.model.names import printable
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, MessageError

_LARGEST_RANGE = 128 << 20
_MOST_REFUSED = 100

#: What kept a snapshot from being had.
_Answers = Literal["not-found", "revision-not-found", "gated", "private", "disabled"]
Kind = _Answers | Literal["offline", "network", "timeout", "protocol", "usage"]
_LONGEST = 1024
_DRIVE = re.compile(r"[A-Za-z]:")
#: Names (without their folder) of what is about the model and not of it.
_ABOUT = re.compile(
    r"""(?: readme .* | .* \.md | (?:model_)? licen[cs]e [^/]* | notice [^/]* | use_policy .* | citation .*
    | \.gitattributes | \.gitignore | \.ds_store
    | .* \. (?: png | jpe?g | gif | svg | webp | ico | pdf | mp4 | webm | mov | mp3 ) )\Z""",
    re.IGNORECASE | re.VERBOSE,
)

#: How names of weights end, of any format.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".gguf", ".onnx", ".h5", ".msgpack")
#: What the files of a repository are for, by how their names begin or end in small letters; the first that fits.
_KINDS: tuple[tuple[Message, tuple[str, ...], tuple[str, ...]], ...] = (
    (Message("weights"), (), (*WEIGHTS, ".index.json")),
    (Message("code"), (), (".py",)),
    (Message("template"), ("chat_template",), (".jinja",)),
    (Message("tokenizer"), ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens"), (".model", ".tiktoken")),
    (Message("settings"), (), (".json",)),
)

#: Files up to this size are hashed unasked, a tenth of a second, and so much of them together.
_HASHED = 64 << 20
_ROOM = 1 << 30
_PIECE = 1 << 20
#: What the Hub keeps in LFS: anything above 10 MiB, and these (the .gitattributes that it writes for a new repository).
_LFS_SIZE = 10 << 20
_LFS = (
    *(".7z", ".arrow", ".bin", ".bz2", ".ckpt", ".ftz", ".gz", ".h5", ".joblib", ".mlmodel", ".model", ".msgpack"),
    *(".npy", ".npz", ".onnx", ".ot", ".parquet", ".pb", ".pickle", ".pkl", ".pt", ".pth", ".rar", ".safetensors"),
    *(".tar", ".tflite", ".tgz", ".wasm", ".xz", ".zip", ".zst"),
)
_DIGEST = re.compile(r"(?:([0-9a-f]{40})|([0-9a-f]{64}))\Z")
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n?\Z"
)
_LONGEST_POINTER = 1024


class SnapshotError(MessageError):
    """A snapshot as a whole cannot be had: no such repository or revision, gated, private, offline, no answer in time.
    The message is one sentence for the user: what was asked for, what came back, what to do. ``usage`` is true when
    what the user wrote is wrong, and false when the job could not be done."""

    def __init__(self, id: str, *values: object, kind: Kind) -> None:
        super().__init__(id, *values)
        self.kind = kind
        self.usage = kind == "usage"


class Unread(NamedTuple):
    """A part of a snapshot that could not be read, with the reason as a clause. It is never "unchanged"."""

    path: str
    reason: Message


class FileEntry(NamedTuple):
    """One file of a snapshot. ``oid`` names the content: ``sha1:<hex>`` for the git blob of a small file,
    ``sha256:<hex>`` for an LFS file. Equal oids mean equal bytes; oids of different kinds say nothing of each other. It
    is None where finding it out would mean reading a large file. ``size`` is in bytes."""

    path: str
    size: int
    oid: str | None

    def same_as(self, other: "FileEntry") -> bool | None:
        """Return whether both hold the same bytes by their oids; None where these cannot tell."""
        if self.oid and other.oid and self.oid.partition(":")[0] == other.oid.partition(":")[0]:
            return self.oid == other.oid
        return None

    def holds(self, content: bytes) -> bool:
        """Return whether size and oid are those of the file; without an oid the size alone counts."""
        oid = self.oid and _oid_of_content(self.oid.partition(":")[0], content)
        return len(content) == self.size and oid == self.oid


class Snapshot(ABC):
    """One state of a repository. Reading is lazy; what was read is kept for the snapshot's life time.

    ``repo`` is the repository as the source calls it now (``zai-org/chatglm3-6b``) or None for a folder; ``asked`` is
    the name the user gave; ``revision`` the commit, or None; ``label`` is short and for people
    (``zai-org/chatglm3-6b @ b098244``, ``./model``). ``complete`` is False where not all files of the commit are known.
    ``refused`` are listed files that are not in ``files``, because their names or oids cannot be trusted or they are
    not at hand. ``lacking`` says as a clause which weights of the revision are not at hand; None where none are missed.
    ``card`` is the front matter of README.md by a Hub's list, empty where the list has none; None for other sources.
    """

    asked: str
    label: str
    files: Mapping[str, FileEntry]
    refused: tuple[Unread, ...]
    repo: str | None = None
    revision: str | None = None
    complete: bool = True
    lacking: Message | None = None
    card: Mapping[str, Any] | None = None

    def entry(self, path: str, limit: int | None = None) -> FileEntry | Unread:
        """Return the file, unless it is missing or larger than ``limit`` bytes."""
        entry = self.files.get(path)
        if entry is None:
            return Unread(path, Message("it is not among the files of {}", self.label))
        if limit is not None and entry.size > limit:
            return Unread(path, Message("it has {} bytes; at most {} are read", f"{entry.size:,}", f"{limit:,}"))
        return entry

    def read(self, path: str, limit: int) -> bytes | Unread:
        """Return the whole file, unread if it is larger than ``limit`` bytes or cannot be fetched."""
        entry = self.entry(path, limit)
        return entry if isinstance(entry, Unread) else self.whole(entry)

    def read_range(self, path: str, offset: int, length: int) -> bytes | Unread:
        """Return exactly these bytes of a file."""
        entry = self.entry(path)
        if isinstance(entry, Unread):
            return entry
        if offset < 0 or length < 0 or offset + length > entry.size:
            return Unread(path, Message("it has {} bytes, fewer than its contents say", f"{entry.size:,}"))
        if length > _LARGEST_RANGE:
            return Unread(path, Message("more than {} MiB of it would have to be read", _LARGEST_RANGE >> 20))
        return self.part(entry, offset, length)

    @abstractmethod
    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        """Return the safetensors headers of many files at once (the 8 length bytes and the JSON)."""

    @abstractmethod
    def part(self, entry: FileEntry, offset: int, length: int) -> bytes | Unread:
        """Return a range that lies in one of the files and is not too much to read."""

    def whole(self, entry: FileEntry) -> bytes | Unread:
        """Return all of one of the files."""
        return self.part(entry, 0, entry.size)


AnySnapshot = TypeVar("AnySnapshot", bound=Snapshot)


def limited_to(snapshot: AnySnapshot, paths: Container[str], refused: Iterable[Unread] = ()) -> AnySnapshot:
    """Return the snapshot with these of its files alone; ``refused`` is added to what it refuses."""
    part = copy(snapshot)
    part.files = {path: entry for path, entry in snapshot.files.items() if path in paths}
    part.refused = (*snapshot.refused, *refused)
    return part


def refusal_of_name(path: object) -> Message | None:
    """Return why a path of a listing is refused, as a clause; None for a clean relative path."""
    if not isinstance(path, str) or not path:
        return Message("it has no name")
    if len(path) > _LONGEST:
        return Message("its name has {} characters", f"{len(path):,}")
    if not path.isprintable():
        return Message("its name has control characters")
    if path.startswith("/") or _DRIVE.match(path):
        return Message("its name is an absolute path")
    if "\\" in path:
        return Message("its name has a backslash")
    if any(part in ("", ".", "..") for part in path.split("/")):
        return Message("its name leads out of the repository")
    return None


def check_items(siblings: Iterable[Any]) -> tuple[dict[str, FileEntry], tuple[Unread, ...]]:
    """Return the files of a list that can be trusted, and the first hundred others by name."""
    files: dict[str, FileEntry] = {}
    refused: list[Unread] = []
    for item in siblings:
        path = item.get("rfilename") if isinstance(item, dict) else None
        reason = refusal_of_name(path)
        entry = None if reason else _entry(str(path), item)
        if entry and entry.path not in files:
            files[entry.path] = entry
            continue
        name = printable(path) if isinstance(path, str) else Message("a file without a name")
        again = Message("it is listed twice") if entry else Message("the list gives it no size")
        refused.append(Unread(name, reason or again))
    if (more := len(refused) - _MOST_REFUSED) > 0:
        rest = Unread(Message("{} more files", f"{more:,}"), Message("their names or entries are not valid either"))
        refused[_MOST_REFUSED:] = [rest]
    return files, tuple(refused)


def _entry(path: str, item: Mapping[str, Any]) -> FileEntry | None:
    lfs, size, digest = item.get("lfs"), item.get("size"), item.get("blobId")
    if isinstance(lfs, dict):
        digest, size = lfs.get("sha256") or lfs.get("oid"), lfs.get("size", size)
    oid = oid_of_digest(digest.removeprefix("sha256:") if isinstance(digest, str) else None)
    is_sure = oid is not None and oid.startswith("sha256:") == isinstance(lfs, dict)
    if type(size) is not int or not 0 <= size < 1 << 63:
        return None
    return FileEntry(path, size, oid if is_sure else None)


def is_text_about_the_model(path: str) -> bool:
    """Return whether a file only describes the model (README, licence, images, .gitattributes)."""
    return _ABOUT.match(path.rpartition("/")[2]) is not None


def kinds_of(paths: Iterable[str]) -> dict[Message, list[str]]:
    """Sort files by what they are for: weights, code, template, tokenizer, settings, docs, or other files."""
    groups: dict[Message, list[str]] = {kind: [] for kind, _, _ in _KINDS}
    docs, others = groups.setdefault(Message("docs"), []), groups.setdefault(Message("other files"), [])
    for path in paths:
        name = path.rpartition("/")[2].lower()
        fits = (groups[kind] for kind, begins, ends in _KINDS if name.startswith(begins) or name.endswith(ends))
        next(fits, docs if is_text_about_the_model(path) else others).append(path)
    return {kind: members for kind, members in groups.items() if members}


def oid_of_digest(digest: object) -> str | None:
    """Return ``sha1:…`` for the 40 digits of a git blob, ``sha256:…`` for the 64 of an LFS file; else None."""
    match = _DIGEST.match(digest) if isinstance(digest, str) else None
    return None if match is None else f"sha1:{match[1]}" if match[1] else f"sha256:{match[2]}"


class Hasher:
    """Object ids of files of this machine, computed from their content; nothing else than content is believed. Unless
    ``everything`` is asked for, large files and what is beyond a gigabyte in all are left alone. ``notice`` is told
    which large file is read."""

    def __init__(self, everything: bool = False, notice: Callable[[str], None] | None = None) -> None:
        self._everything = everything
        self._notice = notice
        self._room = _ROOM

    def oid(self, place: str, size: int, kind: str = "") -> str | None:
        """Return the oid of one ``kind`` (sha1, sha256), or the one that the Hub would give the file: sha256 if it uses
        LFS, else that of the git blob. None if the file is left alone or cannot be read."""
        if not self._everything:
            if size > min(_HASHED, self._room):
                return None
            self._room -= size
        elif size > _HASHED and self._notice is not None:
            self._notice(Message("reading {} ({} GB)", os.path.basename(place), f"{size / 1e9:.1f}"))
        lfs = size > _LFS_SIZE or os.path.splitext(place)[1].lower() in _LFS
        kind = kind or ("sha256" if lfs else "sha1")
        try:
            with open(Files().open(place), "rb", buffering=0) as file:
                left = os.fstat(file.fileno()).st_size
                digest = _new(kind, left)
                while piece := file.read(_PIECE):
                    digest.update(piece)
                    left -= len(piece)
        except (OSError, ValueError):
            return None
        return None if left else f"{kind}:{digest.hexdigest()}"  # it changed while it was read


def _new(kind: str, size: int) -> "hashlib._Hash":
    return hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 (git's own)


def pointer_in(place: str, size: int) -> tuple[int, str] | None:
    """Return the size in bytes and the oid that a file points to, if it is git's text in place of an LFS file."""
    try:
        match = _POINTER.match(Files().whole(place, _LONGEST_POINTER)) if 100 <= size <= _LONGEST_POINTER else None
    except OSError:
        return None
    return (int(match[2]), f"sha256:{match[1].decode()}") if match else None


def _oid_of_content(kind: str, content: bytes) -> str:
    """Return the oid of one kind (sha1, sha256) of this content."""
    digest = _new(kind, len(content))
    digest.update(content)
    return f"{kind}:{digest.hexdigest()}"


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
            oid = None if isinstance(content, Unread) else _oid_of_content(kind, content)
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
