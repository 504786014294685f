"""PyTorch checkpoints are described from a few ranges, and nothing in them is imported or run."""

import io
import os
import struct
import sys
import zipfile
from pathlib import Path

import pytest
from header_true import Repository
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_files import legacy_checkpoint, state_pickle, zip_checkpoint

from envdoctor.matrix import load_toml
from envdoctor.revision import Checkpoint, Clock, Unread, described, read_checkpoint
from envdoctor.system import sentence

ATTACKS = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "attacks" / "pickles.toml")["attack"]
TENSORS = {"model.embed.weight": ("F16", (8, 4)), "lm_head.weight": ("F16", (8, 4)), "step": ("I64", ())}


def read(content: bytes, clock: Clock | None = None) -> Checkpoint | Unread:
    return read_checkpoint(Repository(texts={"pytorch_model.bin": content}), "pytorch_model.bin", clock or Clock())


def scan(pickle: bytes) -> Checkpoint:
    """What a pickle describes, read in this process."""
    return Checkpoint(*described(pickle, "zip"))


def test_why_a_pickle_cannot_be_read_crosses_its_child_as_a_message():
    problem = read(b"\x80\x04" + b"garbage").problem
    assert problem and sentence("zh", problem).startswith("不是完整的 pickle")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_globals_of_an_attack_are_found_and_nothing_runs(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = scan(bytes.fromhex(attack["hex"]) if "hex" in attack else attack["pickle"].encode())
    assert found.globals == attack["globals"]
    assert found.problem is None and found.is_pickle
    assert os.listdir(tmp_path) == []


def test_a_module_that_a_pickle_names_is_not_imported():
    assert scan(b"cantigravity\nfly\n)R.").globals == ["antigravity.fly"]
    assert "antigravity" not in sys.modules
    assert scan(b"c__builtin__\nset\n.").globals == ["builtins.set"], "names of Python 2 are told in Python 3"


@pytest.mark.parametrize(
    ("content", "names", "whole"),
    [
        # a global in the keys of the storages, where the old format goes on
        (legacy_checkpoint(state_pickle(TENSORS), keys=b"\x80\x02cos\nsystem\nq\x00."), ["os.system"], True),
        # a global in the pickle of the number that the old format begins with
        (b"\x80\x02cos\nsystem\nq\x000" + legacy_checkpoint(state_pickle(TENSORS))[2:], ["os.system"], True),
        # what goes on behind what is read may have more globals, and what is no pickle has none
        (b"\x80\x02X" + struct.pack("<I", 1 << 30) + bytes(9 << 20), [], False),
        (b"\xfe\xed\xfa\xce" * 5000, [], True),
    ],
)
def test_globals_outside_of_an_archive(content, names, whole):
    found = read(content)
    assert (set(names) <= set(found.globals), bool(found.globals), found.all_globals) == (True, bool(names), whole)


@pytest.mark.parametrize("between", [b"0" + b"X\x01\0\0\0a", b"}0"], ids=["taken back", "a table"])
def test_only_texts_that_stand_before_it_are_a_name_for_certain(between):
    pickle = b"\x80\x04X\x02\0\0\0osX\x06\0\0\0system" + between + b"\x93."
    assert scan(pickle).globals == ["a name that is computed"]


@pytest.mark.parametrize("wrap", [zip_checkpoint, legacy_checkpoint], ids=["zip", "legacy"])
def test_names_dtypes_and_shapes_are_read(wrap):
    found = read(wrap(state_pickle(TENSORS)))
    assert isinstance(found, Checkpoint)
    assert found.problem is None
    assert {name: (one.dtype, one.shape) for name, one in found.tensors.items()} == TENSORS
    assert found.globals == (
        *("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch.HalfStorage", "torch.LongStorage"),
    )


def test_tied_tensors_have_one_storage():
    found = read(zip_checkpoint(state_pickle(TENSORS, shared={"lm_head.weight": "model.embed.weight"})))
    assert found.tensors["lm_head.weight"] == found.tensors["model.embed.weight"]


def test_what_torch_saves_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 8))
    extra = {name: torch.zeros(1, 2, 3, 4, dtype=getattr(torch, name)) for name in ("bfloat16", "uint8", "bool")}
    for state in ({**model.state_dict(), **extra}, dict(model.named_parameters()), {}):
        for options in ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}):
            torch.save(state, tmp_path / "x.bin", **options)
            found = read((tmp_path / "x.bin").read_bytes())
            assert {name: tensor.shape for name, tensor in found.tensors.items()} == {
                name: tuple(tensor.shape) for name, tensor in state.items()
            }


def test_weights_are_not_read():
    repository = Repository(texts={"pytorch_model.bin": zip_checkpoint(state_pickle(TENSORS), data=5_000_000)})
    read_checkpoint(repository, "pytorch_model.bin", Clock())
    assert sum(length for _, _, length in repository.ranges) < 40_000


def test_a_long_directory_and_a_long_pickle_are_read_to_their_end():
    tensors = {f"layers.{number}.weight": ("F32", (2,)) for number in range(2000)}
    archive = io.BytesIO(zip_checkpoint(state_pickle(tensors)))
    with zipfile.ZipFile(archive, "a") as file:
        for number in range(1200):  # longer than the tail
            file.writestr(f"archive/data/{number + 1}", b"12345678")
    assert len(read(archive.getvalue()).tensors) == 2000
    assert len(read(legacy_checkpoint(state_pickle(tensors), data=1000)).tensors) == 2000
    assert read(zip_checkpoint(state_pickle(TENSORS), method=zipfile.ZIP_DEFLATED)).problem is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zip_checkpoint(bytes(40 << 20), method=zipfile.ZIP_DEFLATED), "too many"),  # a bomb
        (zip_checkpoint(state_pickle(TENSORS), names=2), "the archive has 2 files named data.pkl instead of one"),
        (zip_checkpoint(state_pickle(TENSORS), data=1000)[:-30], "cut"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "it is a Git LFS pointer"),
    ],
)
def test_what_is_no_checkpoint_is_unread(content, words):
    found = read(content)
    assert isinstance(found, Unread) and words in found.reason


LONGEST = b"\x8a\xff" + b"\x7f" * 255  # a number of 255 bytes


@pytest.mark.parametrize(
    "pickle",
    [
        b"\x80\x02)" + b"\x85" * 200_000 + b"Q.",
        b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
        b"\x80\x02}X\x05\x00\x00\x00model" + state_pickle(TENSORS)[2:-1] + b"s.",
        state_pickle(TENSORS, extra=b"K\x010"),
        state_pickle({"w": ("F32", (3, 5))}).replace(b"J\x03\0\0\0J\x05\0\0\0", LONGEST * 2),
        state_pickle({"w": ("F32", (1,) * 65)}),
    ],
)
def test_tensors_of_what_is_not_plainly_a_table_of_them_are_not_known(pickle):
    found = read(zip_checkpoint(pickle))
    assert found.tensors is None and found.problem is None and found.all_globals


def test_long_pickles_do_not_break_the_reader():
    chain = b"\x80\x02ccollections\nOrderedDict\nq\x00" + b")R" * 100_000 + b"."
    assert read(zip_checkpoint(chain)).problem is None
    digits = scan(b"L" + b"9" * 100_000 + b"L\n.")
    assert digits.problem and not digits.all_globals


def test_a_pickle_that_takes_too_much_is_given_up_in_its_child():
    clock = Clock()
    clock.left = 0.5
    found = read(zip_checkpoint(b"\x80\x02" + b"N0" * 8_000_000 + b"N."), clock)
    assert not found.all_globals and found.tensors is None and found.problem
    assert clock.left <= 0
    again = read(zip_checkpoint(state_pickle(TENSORS)), clock)  # nor are the other shards that follow
    assert not again.all_globals and again.tensors is None and "took more than" in again.problem


def crowded(members):
    """An archive with that many empty files beside its pickle."""
    archive = io.BytesIO(zip_checkpoint(state_pickle(TENSORS)))
    with zipfile.ZipFile(archive, "a") as file:
        for number in range(members):
            file.writestr(f"archive/data/{number:06}" + "-" * 2000, b"")
    return archive.getvalue()


def test_looking_through_a_directory_takes_from_the_time_of_all_files():
    clock = Clock()
    clock.left = 1e-6
    assert "took more than" in read(crowded(50), clock).problem and clock.left < 0
    found = read(crowded(4500))
    assert isinstance(found, Unread) and "too many to read" in found.reason


@settings(max_examples=150)
@given(st.binary(max_size=400), st.integers(0, 600))
def test_damaged_pickles_never_raise(noise, place):
    for kind, content in (("zip", state_pickle(TENSORS)), ("prefix", legacy_checkpoint(state_pickle(TENSORS)))):
        assert described(content[:place] + noise + content[place + len(noise) :], kind)
    assert described(noise, "prefix")


@settings(max_examples=20)
@given(st.binary(max_size=400), st.integers(0, 600))
def test_damaged_archives_never_raise(noise, place):
    content = zip_checkpoint(state_pickle(TENSORS))
    assert isinstance(read(content[:place] + noise + content[place + len(noise) :]), (Checkpoint, Unread))
