"""Pickles that came, safetensors that went, and what new pickles would import."""

from __future__ import annotations

import pytest
from comparing import outcome
from header_true import Repository, Tensors
from rooms import comparer
from torch_files import state_pickle, zip_checkpoint

from envdoctor.hub import COMPUTED_NAME

pickles = comparer("pickles")
NOT_LISTED = comparer("pickles").NOT_LISTED
RUNS_CODE = comparer("pickles").RUNS_CODE
Globals = comparer("pickles").Globals

TENSORS: Tensors = {"model.embed_tokens.weight": ("F16", (8, 4))}
SAFE = zip_checkpoint(state_pickle(TENSORS))


def with_global(name: str) -> bytes:
    module, _, attribute = name.rpartition(".")
    return zip_checkpoint(state_pickle(TENSORS, extra=f"c{module}\n{attribute}\n0".encode()))


def safetensors(**texts: bytes) -> Repository:
    files = {name.replace("_bin", ".bin"): content for name, content in texts.items()}
    return Repository({"model.safetensors": TENSORS}, files)


def found(old: Repository, new: Repository) -> list[tuple[str, str, str | None]]:
    return [(change.kind, change.symbol, change.after) for change in outcome(pickles, old, new).changes]


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("torch.FloatStorage", None),
        ("torch._utils._rebuild_tensor_v2", None),
        ("collections.OrderedDict", None),
        ("os.system", RUNS_CODE),
        ("subprocess.Popen", RUNS_CODE),
        ("builtins.eval", RUNS_CODE),
        ("builtins.getattr", RUNS_CODE),
        ("importlib.util.find_spec", RUNS_CODE),
        (COMPUTED_NAME, RUNS_CODE),
        ("argparse.Namespace", NOT_LISTED),
        ("collections.OrderedDict.__init__.__globals__", NOT_LISTED),
        ("torch.FloatStorage.__reduce__", NOT_LISTED),
    ],
)
def test_verdicts_of_globals(matrix, name, verdict):
    assert Globals(matrix).verdict(name) == verdict


def test_a_pickle_beside_safetensors_is_added(matrix):
    assert found(safetensors(), safetensors(pytorch_model_bin=SAFE)) == [
        ("pickle-added", "pytorch_model", "beside safetensors")
    ]


def test_a_pickle_that_takes_the_place_of_safetensors_is_told_twice_over(matrix):
    new = Repository(texts={"pytorch_model.bin": SAFE})
    assert found(safetensors(), new) == [
        ("pickle-added", "pytorch_model", "loaded by default"),
        ("safetensors-removed", "model", "pytorch_model.bin"),
    ]


def test_shards_of_one_pickle_are_one_change(matrix):
    shards = {f"pytorch_model-0000{number}-of-00002.bin": SAFE for number in (1, 2)}
    changes = outcome(pickles, safetensors(), Repository({"model.safetensors": TENSORS}, shards)).changes
    assert [(change.kind, change.count) for change in changes] == [("pickle-added", 2)]


def test_a_file_of_the_training_run_is_another_file(matrix):
    new = safetensors(optimizer_bin=SAFE)
    assert found(safetensors(), new) == [("pickle-added", "optimizer.bin", "other file")]


def test_a_new_global_that_runs_code_comes_first(matrix):
    old = Repository(texts={"pytorch_model.bin": SAFE})
    new = Repository(texts={"pytorch_model.bin": with_global("posix.system")})
    assert found(old, new) == [("unsafe-global-added", "posix.system", RUNS_CODE)]


def test_a_global_that_was_there_before_is_not_new(matrix):
    old = Repository(texts={"pytorch_model.bin": with_global("my_code.Block")})
    new = Repository(texts={"pytorch_model.bin": with_global("my_code.Block") + b""})
    new.files["pytorch_model.bin"] = new.files["pytorch_model.bin"]._replace(oid="sha1:other")
    assert found(old, new) == []


def test_an_unchanged_pickle_is_not_read(matrix):
    old, new = (Repository(texts={"pytorch_model.bin": with_global("posix.system")}) for _ in range(2))
    assert found(old, new) == []
    assert old.ranges == new.ranges == []


def test_a_pickle_that_cannot_be_read_is_unread(matrix):
    new = safetensors(pytorch_model_bin=SAFE)
    new.broken["pytorch_model.bin"] = "no answer in 60 s"
    assert [item.path for item in outcome(pickles, safetensors(), new).unread] == ["pytorch_model.bin"]


def test_a_binary_file_that_is_no_pickle_is_no_danger(matrix):
    new = safetensors(openvino_model_bin=b"\xfe\xed" * 5000)
    compared = outcome(pickles, safetensors(), new)
    assert compared.unread == ()
    assert [change.kind for change in compared.changes] == ["pickle-added"]


def test_hundreds_of_globals_are_cut_to_a_list(matrix):
    extra = b"".join(b"cmy_code\nBlock%d\n0" % number for number in range(300))
    new = safetensors(pytorch_model_bin=zip_checkpoint(state_pickle(TENSORS, extra=extra)))
    changes = found(safetensors(), new)
    assert changes[-1][:2] == ("unsafe-global-added", "280 more globals")
    assert len(changes) == 22
