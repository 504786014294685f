"""The weight files of a repository as sets that are loaded together, and their tensors, read from headers only.

Which sets two snapshots share, which are compared with which, which headers have to be read for it, and whether the
index of a set agrees with its shards. Tensors go by the patterns of their names, in which running numbers become {i},
experts {e}, so that a layer is one line instead of sixty.
"""

import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import NamedTuple, TypeAlias

from envdoctor.revision.comparer import Change, parted, read_json
from envdoctor.revision.hub.pickle_reading import TOO_LONG, Clock, PickledTensor, read_checkpoint
from envdoctor.revision.hub.safetensors_header import DTYPE_BITS, Header, HeaderError, Tensor, parse_header
from envdoctor.revision.hub.snapshot import FileEntry, Snapshot, Unread
from envdoctor.system.message import Message, listed, said_by

#: Formats whose tensors are not read; a difference between such files is known by their object ids alone.
_OPAQUE = (".gguf", ".ggml", ".h5", ".msgpack", ".onnx", ".onnx_data", ".tflite", ".npz")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_SHARD = re.compile(r"-(\d{5,6})-of-(\d{5,6})\Z")
_PART = re.compile(r"\.\d\d\Z")
#: Pickled files under other names are the state of a training run, or no weights at all.
_PICKLED_STEMS = re.compile(r"(?:.*pytorch_model|adapter_model|model|consolidated)(?:\.[a-z0-9_]+)?\Z")
#: Of one numbering. DeepSeek-V3 has 163.
_MOST_SHARDS = 4096
#: That of DeepSeek-V3, with 91,991 tensors, has 8.9 MB.
_LARGEST_INDEX = 64 << 20
_EXTENSION = {"safetensors": ".safetensors", "pickled": ".bin"}
#: What transformers and peft look for, in their order of preference.
_PREFERRED = (
    *(("model", "safetensors"), ("pytorch_model", "pickled"), ("adapter_model", "safetensors")),
    *(("adapter_model", "pickled"), ("diffusion_pytorch_model", "safetensors")),
    *(("consolidated", "safetensors"), ("consolidated", "pickled")),
)


#: A tensor: its dtype as safetensors spells it, and its shape.
Spec: TypeAlias = Tensor | PickledTensor


@dataclass
class WeightLayout:
    """Tensors of some files, ``files`` being those that were read and ``unread`` those that could not be. ``tensors``
    maps names to what they are, ``where`` to their file. ``twins`` are names that share their data with an
    earlier name (tied weights in a pickle). ``twice`` are names that two files hold. ``headers`` are those of
    safetensors files, ``raw`` their own bytes, to tell "the same header" from "the same tensors". ``opaque`` are files
    of a pickle's name that are none."""

    files: set[str] = field(default_factory=set)
    tensors: dict[str, Spec] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    headers: dict[str, Header] = field(default_factory=dict)
    raw: dict[str, int] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def add(self, path: str, tensors: Mapping[str, Spec]) -> None:
        """Add one file's tensors."""
        self.files.add(path)
        self.twice += [name for name in tensors if name in self.tensors]
        self.tensors.update(tensors)
        self.where.update(dict.fromkeys(tensors, path))


def read_safetensors(snapshot: Snapshot, paths: Iterable[str], clock: Clock) -> WeightLayout:
    """Return the layout of safetensors files. Files that could not be read are only in ``unread``."""
    layout = WeightLayout()
    for path, raw in snapshot.headers(list(paths)).items():
        if isinstance(raw, Unread) or clock.left <= 0:
            layout.unread.append(raw if isinstance(raw, Unread) else Unread(path, TOO_LONG))
            continue
        began = process_time()
        try:
            header = parse_header(raw, snapshot.files[path].size)
        except HeaderError as error:
            layout.unread.append(Unread(path, said_by(error)))
            continue
        finally:
            clock.left -= process_time() - began
        layout.add(path, header.tensors)
        layout.raw[path] = hash(raw[: header.header_bytes])
        layout.headers[path] = header
    return layout


def read_pickled(snapshot: Snapshot, paths: Iterable[str], clock: Clock) -> WeightLayout:
    """Return the layout of PyTorch checkpoints, with the tensors that their pickles name."""
    layout = WeightLayout()
    for path in paths:
        checkpoint = read_checkpoint(snapshot, path, clock)
        if isinstance(checkpoint, Unread):
            layout.unread.append(checkpoint)
        elif not checkpoint.is_pickle:
            layout.opaque.append(path)
        elif checkpoint.tensors is None:
            reason = checkpoint.problem or Message("it is no table of tensors as torch.save writes one")
            layout.unread.append(Unread(path, Message("its tensors' names could not be read: {}", reason)))
        else:
            layout.add(path, checkpoint.tensors)
            first: dict[tuple[str, tuple[int, ...]], str] = {}
            for name, tensor in checkpoint.tensors.items():
                owner = first.setdefault((tensor.storage, tensor.shape), name)
                if owner != name:
                    layout.twins[name] = owner
    return layout


#: Bits of dtypes that only pickles have.
_MORE_BITS = {"C128": 128, "qint8": 8, "quint8": 8, "qint32": 32, "quint4x2": 4, "quint2x4": 2}


class TensorGroup(NamedTuple):
    """Tensors of one pattern, in the order of their running numbers."""

    pattern: str
    numbers: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    specs: tuple[Spec, ...]

    @property
    def bytes(self) -> int:
        """Return the bytes of all its tensors."""
        return sum(size_of(spec)[1] for spec in self.specs)


def pattern_of(name: str) -> tuple[str, tuple[int, ...]]:
    """Return ``model.layers.{i}.mlp.experts.{e}.up_proj.weight`` and the numbers that stood there."""
    parts = name.split(".")
    numbers: list[int] = []
    for place, part in enumerate(parts):
        # 19 digits are no running number; isdecimal alone would let other scripts' digits through.
        if part.isdecimal() and part.isascii() and len(part) < 19:
            numbers.append(int(part))
            parts[place] = "{e}" if place and parts[place - 1].endswith("experts") else "{i}"
    return (".".join(parts) if numbers else name), tuple(numbers)


def group(names: Iterable[str], tensors: Mapping[str, Spec]) -> dict[str, TensorGroup]:
    """Group names by their pattern, patterns in the order of their first name."""
    members_of: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in names:
        pattern, numbers = pattern_of(name)
        members_of.setdefault(pattern, []).append((numbers, name))
    groups = {}
    for pattern, members in members_of.items():
        numbers_of, names_of = zip(*sorted(members), strict=True)
        groups[pattern] = TensorGroup(pattern, numbers_of, names_of, tuple(tensors[name] for name in names_of))
    return groups


def leaf(pattern: str) -> str:
    """Return the module's own name for LoRA: ``q_proj`` of ``model.layers.{i}.self_attn.q_proj.weight``."""
    parts = [part for part in pattern.split(".") if part not in ("{i}", "{e}")]
    return parts[-2] if len(parts) > 1 else parts[-1] if parts else pattern


def size_of(spec: Spec) -> tuple[int, int]:
    """Return the number of elements and bytes of a tensor; 0 bytes for a dtype of unknown width."""
    count = math.prod(spec.shape)
    bits = DTYPE_BITS.get(spec.dtype) or _MORE_BITS.get(spec.dtype, 0)
    return count, -(-count * bits // 8)


def spell_shape(shape: tuple[int, ...]) -> str:
    """Spell a shape: ``[4096, 2560]``; a scalar is ``[]``."""
    return "[" + ", ".join(map(str, shape[:6])) + (", …" if len(shape) > 6 else "") + "]"


#: How many tensors, with how many parameters (elements) and bytes.
Amount = tuple[int, int, int]


def amounts_of(tensors: Mapping[str, Spec]) -> dict[str, dict[str, Amount]]:
    """Return tensors, parameters and bytes by dtype and by module (up to behind the first {i}), largest first."""
    counted: dict[str, dict[str, Amount]] = {"dtype": {}, "module": {}}
    for name, spec in tensors.items():
        elements, size = size_of(spec)
        parts = pattern_of(name)[0].split(".")
        end = parts.index("{i}") + 2 if "{i}" in parts else len(parts)
        for by, key in (("dtype", spec.dtype), ("module", ".".join(parts[: min(end, len(parts) - 1)] or parts))):
            amount = counted[by].get(key, (0, 0, 0))
            counted[by][key] = amount[0] + 1, amount[1] + elements, amount[2] + size
    return {by: dict(sorted(table.items(), key=lambda item: -item[1][2])) for by, table in counted.items()}


def gigabytes(size: int) -> str:
    """Spell bytes as people write them: ``12.5 GB``, ``4.2 MB`` (decimal, as the Hub shows sizes)."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


class SetKey(NamedTuple):
    """A set of weight files that make one checkpoint: ``("", "model", "safetensors")`` for model-00001-of-…. ``format``
    is safetensors, pickled or opaque; the files of an opaque set are only compared by their object ids."""

    folder: str
    stem: str
    format: str


class Shared(NamedTuple):
    """Files that hold the same bytes in both snapshots. ``moved`` maps old paths to the new names of their content."""

    same: tuple[str, ...]
    moved: Mapping[str, str]


def weight_sets(snapshot: Snapshot) -> dict[SetKey, tuple[str, ...]]:
    """Return the sets of a snapshot with their files in order."""
    sets: dict[SetKey, list[str]] = {}
    for path in sorted(snapshot.files):
        if key := _key(path):
            sets.setdefault(key, []).append(path)
    return {key: tuple(paths) for key, paths in sets.items()}


def weight_paths(snapshot: Snapshot) -> dict[str, FileEntry]:
    """Return every weight file."""
    return {path: entry for path, entry in snapshot.files.items() if _key(path) is not None}


def _key(path: str) -> SetKey | None:
    folder, name = posixpath.split(path)
    stem, extension = posixpath.splitext(name)
    lower, stem = extension.lower(), _SHARD.sub("", _PART.sub("", stem))
    if lower in _OPAQUE:
        return SetKey(folder, name, "opaque")
    if lower == ".safetensors":
        return SetKey(folder, stem, "safetensors")
    return SetKey(folder, stem, "pickled") if lower in _PICKLED and _PICKLED_STEMS.match(stem) else None


def main_set(sets: Iterable[SetKey]) -> SetKey | None:
    """Return the set that a loader takes from the repository; None if unknown."""
    root = [key for key in sets if not key.folder and key.format != "opaque"]
    preferred = [key for key in (SetKey("", *one) for one in _PREFERRED) if key in root]
    return preferred[0] if preferred else root[0] if len(root) == 1 else None


def _missing_shards(paths: Iterable[str]) -> Iterator[str | Unread]:
    """Yield names that a numbering "3 of 7" promises and that are missing among the paths."""
    present, numberings = set(paths), dict[tuple[str, int, str, str], str]()
    for path in sorted(present):
        stem, extension = posixpath.splitext(path)
        if match := _SHARD.search(stem):
            numberings.setdefault((stem[: match.start()], len(match[1]), match[2], extension), path)
    for (stem, digits, total, extension), path in numberings.items():
        if int(total) > _MOST_SHARDS:
            yield Unread(path, Message("it is one of {} shards; at most {} are looked for", total, _MOST_SHARDS))
        else:
            names = (f"{stem}-{number:0{digits}}-of-{total}{extension}" for number in range(1, int(total) + 1))
            yield from (name for name in names if name not in present)


def shared_files(old: Mapping[str, FileEntry], new: Mapping[str, FileEntry]) -> Shared:
    """Return weight files with one object id in both snapshots, under the same name or another one."""
    same = tuple(path for path, entry in old.items() if path in new and entry.oid and entry.oid == new[path].oid)
    rest: dict[str, list[str]] = {}
    for path, entry in sorted(new.items()):
        if entry.oid and path not in same:
            rest.setdefault(entry.oid, []).append(path)
    moved: dict[str, str] = {}
    for path, entry in sorted(old.items()):
        if path not in same and (names := rest.get(entry.oid or "")):
            moved[path] = names.pop(0)
    return Shared(same, moved)


class WeightSet(NamedTuple):
    """The files of one checkpoint in one snapshot, and which of them have to be read."""

    key: SetKey
    files: tuple[str, ...]
    read: tuple[str, ...]


def plan(old: Snapshot, new: Snapshot, shared: Shared) -> tuple[list[tuple[WeightSet, WeightSet]], list[Change]]:
    """Return the pairs of sets to compare, and the changes of sets that only one side has."""
    old_sets, new_sets = weight_sets(old), weight_sets(new)
    arrived = set(shared.moved.values())
    changes: list[Change] = []
    keys: list[tuple[SetKey, SetKey]] = []
    for key in sorted(set(old_sets) & set(new_sets)):
        if key.format == "opaque":
            differing = [path for path in old_sets[key] if path not in shared.same]
            changes += [Change("weights", "opaque-changed", path, path) for path in differing]
        else:
            keys.append((key, key))
    old_main, new_main = main_set(old_sets), main_set(new_sets)
    replaced = set[SetKey]()
    if old_main and new_main and old_main != new_main:
        replaced = {old_main, new_main}
        keys.append((old_main, new_main))
        files = new_sets[new_main]
        was, now = _spell(old_main, old_sets[old_main]), _spell(new_main, files)
        changes.append(Change("weights", "set-replaced", files[0], new_main.stem, was, now, len(files)))
    for kind, sets, others, elsewhere in (
        ("set-removed", old_sets, new_sets, set(shared.moved)),
        ("set-added", new_sets, old_sets, arrived),
    ):
        for key in sorted(sets.keys() - others.keys() - replaced):
            if files_of_set := [path for path in sets[key] if path not in elsewhere]:
                text = _spell(key, files_of_set)
                kind = "weights-gone" if kind == "set-removed" and key == old_main and new_main is None else kind
                gone, come = (None, text) if kind == "set-added" else (text, None)
                changes.append(Change("weights", kind, files_of_set[0], key.stem, gone, come, len(files_of_set)))
    pairs = []
    for one, other in keys:
        known = ({*shared.same, *shared.moved}, {*shared.same, *arrived}) if one == other else (set[str](), set[str]())
        before, after = (
            WeightSet(key, sets[key], tuple(path for path in sets[key] if path not in equal))
            for key, sets, equal in ((one, old_sets, known[0]), (other, new_sets, known[1]))
        )
        if before.read or after.read or before.files != after.files:
            pairs.append((before, after))
    return pairs, changes


def _spell(key: SetKey, files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else Message("{} {} files", len(files), key.format)


def index_path(key: SetKey) -> str:
    """Return the path of a set's index."""
    return posixpath.join(key.folder, f"{key.stem}{_EXTENSION.get(key.format, '')}.index.json")


def check_index(
    snapshot: Snapshot, key: SetKey, files: Sequence[str], layout: WeightLayout
) -> Iterator[Change | Unread]:
    """Yield what the index of a new set gets wrong; of shards that ``layout`` lacks it is taken at its word."""
    absent, unsure = parted(_missing_shards(files))
    path = index_path(key)
    yield from unsure[:1]
    if absent:
        yield Change("weights", "shard-missing", files[0], listed(sorted(absent)), None, None, len(absent))
    read = read_json(snapshot, path, _LARGEST_INDEX)
    if read is None:
        if len(files) > 1 and "-of-" in files[0]:
            yield Change("weights", "index-missing", path, path, None, None, len(files))
        return
    table = read if isinstance(read, Unread) else read.data.get("weight_map")
    if not isinstance(table, dict):
        yield read if isinstance(read, Unread) else Unread(path, Message("it has no weight_map"))
        return
    places = {name: posixpath.join(key.folder, str(file)) for name, file in table.items()}
    present = {*snapshot.files, *absent}
    lost = [name for name, where in places.items() if where not in present]
    moved = [name for name, where in places.items() if layout.where.get(name) != where and where in layout.files]
    for problem, names in (
        (Message("in a file that is not there"), lost),
        (Message("not in the file it names"), moved),
        (Message("not in the index"), [name for name in layout.where if name not in table]),
    ):
        if names:
            first, *others = dict.fromkeys(pattern_of(name)[0] for name in names)
            rest = listed(others) or None
            yield Change("weights", "index-mismatch", path, first, None, problem, len(names), rest)
