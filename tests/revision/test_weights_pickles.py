"""Pickles that came, safetensors that went, and what new pickles would import."""

from collections.abc import Mapping

import pytest
from comparing import outcome
from header_true import Repository, Tensors
from rooms import comparer
from tables import rows
from torch_files import state_pickle, zip_checkpoint

from envdoctor.revision import COMPUTED_NAME

pickles = comparer("compare_pickles")

TENSORS: Tensors = {"model.embed_tokens.weight": ("F16", (8, 4))}
RUNS_CODE = "runs code"


def checkpoint(extra: bytes = b"") -> bytes:
    return zip_checkpoint(state_pickle(TENSORS, extra=extra))


def taking(name: str) -> bytes:
    """A checkpoint that takes this name of a module."""
    module, _, attribute = name.rpartition(".")
    return checkpoint(f"c{module}\n{attribute}\n0".encode())


def beside(files: Mapping[str, bytes] = {}) -> Repository:
    """A snapshot with one file of safetensors, and others."""
    return Repository({"model.safetensors": TENSORS}, files)


def found(old: Repository, new: Repository) -> list[tuple[str, str, str | None]]:
    return [(change.kind, change.symbol, change.after) for change in outcome(pickles, old, new).changes]


SAFE, POSIX = checkpoint(), taking("posix.system")
SHARDS = {f"pytorch_model-0000{number}-of-00002.bin": SAFE for number in (1, 2)}


@rows("name verdict")
def test_a_name_that_a_new_pickle_takes_gets_its_verdict(name, verdict):
    expected = [("unsafe-global-added", name, verdict)] if verdict else []
    assert found(beside({"m.bin": SAFE}), beside({"m.bin": taking(name)})) == expected
    assert found(beside({"m.bin": taking(name)}), beside({"m.bin": taking(name) + bytes(1)})) == []


def test_a_name_that_a_pickle_computes_runs_code():
    computed = checkpoint(b"K\x01K\x02\x930")
    assert found(beside({"m.bin": SAFE}), beside({"m.bin": computed})) == [
        ("unsafe-global-added", COMPUTED_NAME, RUNS_CODE)
    ]


@pytest.mark.parametrize(
    ("files", "name", "how", "count"),
    [
        ({"pytorch_model.bin": SAFE}, "pytorch_model", "beside safetensors", 1),
        (SHARDS, "pytorch_model", "beside safetensors", 2),
        ({"optimizer.bin": SAFE}, "optimizer.bin", "other file", 1),
    ],
)
def test_a_pickle_that_comes_is_one_change(files, name, how, count):
    compared = outcome(pickles, beside(), beside(files))
    assert compared.unread == ()
    (change,) = compared.changes
    assert (change.kind, change.symbol, change.after, change.count) == ("pickle-added", name, how, count)


def test_what_has_only_the_name_of_a_pickle_is_another_file():
    coreml, metal = {"coreml/weight.bin": b"\xfe\xed" * 5000}, {"metal/model.bin": b"\xc3(" * 5000}
    assert found(beside(), beside(coreml)) == [("file-added", "coreml/weight.bin", "10,000 bytes")]
    assert found(beside(coreml), beside()) == [("file-removed", "coreml/weight.bin", None)]
    assert found(beside(), beside(metal)) == []
    other = {"metal/model.bin": b"\xc3)" * 5000}
    compared = outcome(comparer("tensors"), beside(metal), beside(other))
    assert [(change.kind, change.path) for change in compared.changes] == [("opaque-changed", "metal/model.bin")]
    assert compared.unread == ()


def test_a_pickle_that_takes_the_place_of_safetensors_is_told_twice_over():
    assert found(beside(), Repository(texts={"pytorch_model.bin": SAFE})) == [
        ("pickle-added", "pytorch_model", "loaded by default"),
        ("safetensors-removed", "model", "pytorch_model.bin"),
    ]


def test_an_unchanged_pickle_is_not_read():
    old, new = (Repository(texts={"pytorch_model.bin": POSIX}) for _ in range(2))
    assert found(old, new) == []
    assert old.ranges == new.ranges == []


def test_a_pickle_that_cannot_be_read_is_unread():
    new = Repository({"model.safetensors": TENSORS}, {"m.bin": SAFE}, broken={"m.bin": "no answer in 60 s"})
    assert [item.path for item in outcome(pickles, beside(), new).unread] == ["m.bin"]


def test_hundreds_of_globals_are_cut_to_a_list():
    many = checkpoint(b"".join(b"cmy_code\nBlock%d\n0" % number for number in range(300)))
    changes = found(beside(), beside({"pytorch_model.bin": many}))
    assert changes[-1][:2] == ("unsafe-global-added", "280 more globals")
    assert len(changes) == 22
