"""Values of weights: read only when asked for, in pieces, and measured as torch measures them."""

import json
import math
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from comparing import outcome
from header_true import Repository
from observing import shipped
from rooms import comparer
from torch_files import state_pickle, zip_checkpoint

from envdoctor.revision import Change, Clock, Compared, Revisions, compare_snapshots, open_folder

tensors = comparer("tensors")

EMBED, LAYER = "model.embed_tokens.weight", "model.layers.{}.mlp.up_proj.weight"
Numbers = Mapping[str, tuple[str, tuple[int, ...], bytes]]


def f32(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def bf16(*numbers: float) -> bytes:
    return b"".join(f32(number)[2:] for number in numbers)


def f16(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}e", *numbers)


def written(folder: Path, held: Numbers) -> Any:
    """A folder with one file of these tensors, as a snapshot."""
    header, content = {}, b""
    for name, (dtype, shape, data) in held.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(content), len(content) + len(data)]}
        content += data
    raw = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + content)
    return open_folder(str(folder))


@pytest.fixture
def compare(tmp_path: Path) -> Any:
    """Compare two tables of tensors with their values."""

    def run(old: Numbers, new: Numbers, budget: int = 0) -> tuple[Compared, list[str]]:
        sides = [written(tmp_path / name, held) for name, held in (("old", old), ("new", new))]
        said: list[str] = []
        revisions = Revisions(*sides, shipped(), Clock(), ("model.safetensors",))
        return tensors.compare(revisions._replace(values=budget, progress=said.append)), said

    return run


def valued(compared: Compared) -> Change:
    (change,) = [change for change in compared.changes if change.kind == "tensor-values-changed"]
    return change


def test_without_being_asked_no_byte_of_a_weight_is_read(tmp_path: Path) -> None:
    sides = [written(tmp_path / name, {"w": ("F32", (2,), f32(1, end))}) for name, end in (("old", 2), ("new", 3))]
    ranges: list[tuple[int, int]] = []
    for side in sides:
        read = side.read_range
        object.__setattr__(side, "read_range", lambda path, *part, read=read: ranges.append(part) or read(path, *part))
    assert [change.kind for change in outcome(tensors, *sides).changes] == ["values-changed"]
    assert ranges and max(offset + length for offset, length in ranges) <= sides[0].files["model.safetensors"].size - 8


@pytest.mark.parametrize(
    ("dtype", "write"), [("F32", f32), ("BF16", bf16), ("F16", f16), ("F64", lambda *n: struct.pack(f"<{len(n)}d", *n))]
)
def test_differences_of_each_dtype(compare: Any, dtype: str, write: Any) -> None:
    compared, said = compare({"w": (dtype, (4,), write(1, 2, -3, 4))}, {"w": (dtype, (4,), write(1, 2, -3.5, 4))})
    change = valued(compared)
    relative = 0.5 / math.sqrt(30)
    assert (change.symbol, change.count) == ("w", 1)
    assert change.after == f"largest difference 0.5, relative {relative:.2%}"
    assert compared.facts["revision.weights"] == "changed" and compared.unread == ()
    assert "are read, 0 B of it from the Hub" in said[0]


def test_rows_of_an_embedding_that_differ(compare: Any) -> None:
    rows = [[float(row), 1.0, 2.0] for row in range(9)]
    changed = [[9.0, 9.0, 9.0] if row in (3, 5) else numbers for row, numbers in enumerate(rows)]
    raws = (b"".join(bf16(*row) for row in side) for side in (rows, changed))
    old, new = ({EMBED: ("BF16", (9, 3), raw)} for raw in raws)
    assert valued(compare(old, new)[0]).after.endswith(", 2 of 9 rows (3 to 5)")


def test_tensors_of_one_pattern_are_one_line_and_the_worst_comes_first(compare: Any) -> None:
    def layers(*numbers: float) -> Numbers:
        held = {LAYER.format(place): ("F32", (2,), f32(1, number)) for place, number in enumerate(numbers)}
        return {**held, "norm.weight": ("F32", (1,), f32(numbers[0]))}

    compared, _ = compare(layers(1, 1, 1), layers(1.01, 1, 2))
    change = valued(compared)
    assert (change.symbol, change.count) == (LAYER.format("{i}"), 3)
    assert change.detail == "also norm.weight"
    assert change.after.startswith("largest difference 1, relative")
    assert [one.count for one in compared.listing if one.kind == "tensor-values-changed"] == [2, 1]


def test_another_dtype_is_compared_by_its_numbers_and_packed_ones_by_their_bytes(compare: Any) -> None:
    compared, _ = compare({"w": ("F32", (2,), f32(1, 2))}, {"w": ("BF16", (2,), bf16(1, 2))})
    assert [change.kind for change in compared.changes] == ["tensor-retyped"]
    packed, _ = compare({"w": ("U8", (2,), b"ab")}, {"w": ("U8", (2,), b"ac")})
    assert "packed" in valued(packed).after
    unlike, _ = compare({"w": ("F32", (2,), f32(1, 2))}, {"w": ("F32", (1, 2), f32(1, 2))})
    assert [change.kind for change in unlike.changes] == ["tensor-reshaped"]


def test_numbers_that_became_none_are_an_error(compare: Any) -> None:
    for lost in (math.nan, math.inf):
        old, new = ({"w": ("F32", (2,), f32(1, number))} for number in (2, lost))
        kinds = [change.kind for change in compare(old, new)[0].changes]
        assert kinds == ["tensor-values-changed", "values-not-finite"]
        assert "values-not-finite" not in [change.kind for change in compare(new, old)[0].changes]


def test_a_pickle_is_not_loaded_for_its_values() -> None:
    pickles = (zip_checkpoint(state_pickle({"w": ("F32", (length,))})) for length in (1, 2))
    sides = [Repository(texts={"pytorch_model.bin": content}) for content in pickles]
    (part,) = tensors.compare(Revisions(*sides, shipped(), Clock(), ("pytorch_model.bin",), 0)).unread
    assert part.reason == "its values were not compared: it is a pickle, which is never loaded"


def test_without_numpy_no_value_is_compared_which_is_said(compare: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    compared, _ = compare({"w": ("F32", (2,), f32(1, 2))}, {"w": ("F32", (2,), f32(1, 3))})
    assert compared.unread[0].reason == "its values were not compared: numpy is not installed beside envdoctor"
    assert [change.kind for change in compared.changes] == ["values-changed"]


def test_equal_values_behind_another_header_are_equal(compare: Any) -> None:
    one, two = ("F32", (2,), f32(1, 2)), ("F32", (1,), f32(3))
    compared, _ = compare({"a": one, "b": two}, {"b": two, "a": one})
    assert compared.changes == () and compared.unread == ()
    assert "every value of 2 of 2 tensors" in compared.equal
    assert compared.facts["revision.weights"] == "equal"


def test_long_tensors_are_read_in_pieces(compare: Any) -> None:
    many = 3 * (1 << 20) + 5
    old, new = (("F32", (many,), bytes(4 * many - 4) + f32(number)) for number in (0, 1))
    change = valued(compare({"w": old}, {"w": new})[0])
    assert change.after == "largest difference 1, relative ∞"


def test_torch_gives_the_same_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(64, 32, generator=generator).to(torch.bfloat16)
    new = (old.float() + 0.01 * torch.randn(64, 32, generator=generator)).to(torch.bfloat16)
    sides = []
    for name, tensor in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        save_file({"w": tensor}, tmp_path / name / "model.safetensors", {"format": "pt"})
        sides.append(open_folder(str(tmp_path / name)))
    comparison = compare_snapshots(*sides, shipped(), areas=["weights"], values=0)
    change = next(change for change in comparison.changes if change.kind == "tensor-values-changed")
    difference = new.double() - old.double()
    largest, relative = difference.abs().max().item(), (difference.norm() / old.double().norm()).item()
    assert change.after == f"largest difference {largest:.3g}, relative {relative:.2%}"
