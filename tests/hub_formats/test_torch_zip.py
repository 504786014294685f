"""PyTorch checkpoints are described from a few ranges, and nothing in them is imported or run."""

from __future__ import annotations

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

from envdoctor.hub import Checkpoint, Clock, Unread, described, read_checkpoint
from envdoctor.hub.pickle_scan import scan_pickle
from envdoctor.knowledge import load_toml

ATTACKS = load_toml(Path(__file__).resolve().parents[2] / "fixtures" / "attacks" / "pickles.toml")["attack"]
TENSORS = {"model.embed.weight": ("F16", (8, 4)), "lm_head.weight": ("F16", (8, 4)), "step": ("I64", ())}


def read(content: bytes, clock: Clock | None = None) -> Checkpoint | Unread:
    return read_checkpoint(Repository(texts={"pytorch_model.bin": content}), "pytorch_model.bin", clock or Clock())


def pickle_of(attack: dict) -> bytes:
    return bytes.fromhex(attack["hex"]) if "hex" in attack else attack["pickle"].encode()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_globals_of_an_attack_are_found_and_nothing_runs(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scan = scan_pickle(pickle_of(attack))
    assert list(scan.globals) == attack["globals"]
    assert (scan.problem is not None) is attack.get("problem", False)
    assert os.listdir(tmp_path) == []


def test_a_module_that_a_pickle_names_is_not_imported():
    assert "antigravity" not in sys.modules
    assert list(scan_pickle(b"cantigravity\nfly\n)R.").globals) == ["antigravity.fly"]
    assert "antigravity" not in sys.modules


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


def test_weights_are_not_read():
    content = zip_checkpoint(state_pickle(TENSORS), data=5_000_000)
    repository = Repository(texts={"pytorch_model.bin": content})
    read_checkpoint(repository, "pytorch_model.bin", Clock())
    assert sum(length for _, _, length in repository.ranges) < 40_000


def test_a_directory_longer_than_the_tail_is_read_by_its_own_range():
    tensors = {f"layers.{number}.weight": ("F32", (2,)) for number in range(1200)}
    buffer = zip_checkpoint(state_pickle(tensors))
    with zipfile.ZipFile(path := _written(buffer), "a") as archive:
        for number in range(1200):
            archive.writestr(f"archive/data/{number + 1}", b"12345678")
    found = read(Path(path).read_bytes())
    assert len(found.tensors) == 1200


def _written(content: bytes) -> str:
    import tempfile

    with tempfile.NamedTemporaryFile(delete=False, suffix=".bin") as file:
        file.write(content)
    return file.name


def test_a_compressed_pickle_is_read_and_a_bomb_is_not():
    assert read(zip_checkpoint(state_pickle(TENSORS), method=zipfile.ZIP_DEFLATED)).problem is None
    bomb = read(zip_checkpoint(bytes(40 << 20), method=zipfile.ZIP_DEFLATED))
    assert isinstance(bomb, Unread)
    assert "too many" in bomb.reason


def test_two_pickles_under_one_name_are_refused():
    found = read(zip_checkpoint(state_pickle(TENSORS), names=2))
    assert found == Unread("pytorch_model.bin", "the archive has 2 files named data.pkl instead of one")


def test_a_cut_archive_says_so():
    found = read(zip_checkpoint(state_pickle(TENSORS), data=1000)[:-30])
    assert isinstance(found, Unread)
    assert "cut" in found.reason


def test_an_lfs_pointer_is_recognised():
    found = read(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    assert found == Unread("pytorch_model.bin", "it is a Git LFS pointer, not the checkpoint itself")


def test_a_global_in_the_storage_keys_of_the_old_format_is_found():
    found = read(legacy_checkpoint(state_pickle(TENSORS), keys=b"\x80\x02cos\nsystem\nq\x00."))
    assert "os.system" in found.globals


def test_the_old_format_is_followed_behind_the_first_prefix():
    tensors = {f"layers.{number}.weight": ("F32", (2,)) for number in range(2000)}
    assert len(read(legacy_checkpoint(state_pickle(tensors), data=1000)).tensors) == 2000


def test_a_pickle_that_goes_on_behind_what_is_read_may_have_more_globals():
    found = read(b"\x80\x02X" + struct.pack("<I", 1 << 30) + bytes(9 << 20))
    assert not found.all_globals


def test_a_file_that_is_no_pickle_has_no_globals():
    found = read(b"\xfe\xed\xfa\xce" * 5000)
    assert (found.globals, found.all_globals, found.tensors) == ((), True, None)


def test_names_of_python_2_are_told_in_python_3():
    assert list(scan_pickle(b"c__builtin__\nset\n.").globals) == ["builtins.set"]


def test_deeply_nested_objects_do_not_break_the_reader():
    deep = b"\x80\x02)" + b"\x85" * 200_000 + b"."
    assert read(zip_checkpoint(deep)).tensors == {}
    chain = b"\x80\x02ccollections\nOrderedDict\nq\x00" + b")R" * 100_000 + b"."
    assert read(zip_checkpoint(chain)).problem is None


def test_a_table_that_holds_itself_ends():
    loop = b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."
    assert read(zip_checkpoint(loop)).tensors == {}


def test_a_number_of_thousands_of_digits_is_not_read():
    assert scan_pickle(b"L" + b"9" * 100_000 + b"L\n.").limited


def test_a_shape_that_no_tensor_has_is_not_multiplied():
    longest = b"\x8a\xff" + b"\x7f" * 255  # a number of 255 bytes
    lengths = state_pickle({"w": ("F32", (3, 5))}).replace(b"J\x03\0\0\0J\x05\0\0\0", longest + longest)
    assert read(zip_checkpoint(lengths)).tensors == {}
    assert read(zip_checkpoint(state_pickle({"w": ("F32", (1,) * 65)}))).tensors == {}


def test_a_pickle_that_takes_too_much_is_given_up_in_its_child():
    clock = Clock()
    clock.left = 0.5
    found = read(zip_checkpoint(b"\x80\x02" + b"N0" * 8_000_000 + b"N."), clock)
    assert not found.all_globals and found.tensors is None and found.problem
    assert clock.left <= 0
    again = read(zip_checkpoint(state_pickle(TENSORS)), clock)  # nor are the other shards that follow
    assert not again.all_globals and again.tensors is None and "took more than" in again.problem


@settings(max_examples=150)
@given(st.binary(max_size=400), st.integers(0, 600))
def test_damaged_pickles_never_raise(noise, place):
    for kind, content in (("zip", state_pickle(TENSORS)), ("prefix", legacy_checkpoint(state_pickle(TENSORS)))):
        assert described(kind, content[:place] + noise + content[place + len(noise) :])
    assert described("prefix", noise)


@settings(max_examples=20)
@given(st.binary(max_size=400), st.integers(0, 600))
def test_damaged_archives_never_raise(noise, place):
    content = zip_checkpoint(state_pickle(TENSORS))
    assert isinstance(read(content[:place] + noise + content[place + len(noise) :]), (Checkpoint, Unread))
