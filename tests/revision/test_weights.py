"""Weights are compared by object ids and headers: what is said of each kind of change, and what is not read for it."""

from __future__ import annotations

import json
import resource

import pytest
from comparing import outcome
from header_true import Repository, Tensors, index, model
from rooms import comparer
from torch_files import state_pickle, zip_checkpoint

from envdoctor.facts import Unknown
from envdoctor.hub import TOO_LONG, Clock
from envdoctor.revision import Change, Compared

tensors = comparer("tensors")

SMALL: dict[str, Tensors] = {
    "model-00001-of-00002.safetensors": {
        "model.embed_tokens.weight": ("BF16", (64, 8)),
        "model.layers.0.mlp.up_proj.weight": ("BF16", (16, 8)),
        "model.layers.0.norm.weight": ("BF16", (8,)),
    },
    "model-00002-of-00002.safetensors": {
        "model.layers.1.mlp.up_proj.weight": ("BF16", (16, 8)),
        "model.layers.1.norm.weight": ("BF16", (8,)),
        "lm_head.weight": ("BF16", (64, 8)),
    },
}


def config(**entries: object) -> dict[str, str]:
    return {"config.json": json.dumps({"vocab_size": 64, **entries})}


def one_file(tensors: Tensors) -> dict[str, Tensors]:
    return {"model.safetensors": tensors}


def everything(shards: dict[str, Tensors]) -> Tensors:
    return {name: spec for shard in shards.values() for name, spec in shard.items()}


def without(shards: dict[str, Tensors], *gone: str) -> dict[str, Tensors]:
    return {file: {n: s for n, s in tensors.items() if n not in gone} for file, tensors in shards.items()}


def compare(old: Repository, new: Repository) -> Compared:
    return outcome(tensors, old, new)


def kinds(found: Compared) -> list[str]:
    return [change.kind for change in found.changes]


def only(found: Compared, kind: str) -> Change:
    (change,) = [change for change in found.changes if change.kind == kind]
    return change


def test_headers_that_took_too_long_leave_those_behind_them_unread():
    clock = Clock()
    clock.left = 1e-9
    found = outcome(tensors, Repository(SMALL), Repository(SMALL, salt="x"), clock)
    first, second = SMALL
    assert [(item.path, item.reason) for item in found.unread] == [(path, TOO_LONG) for path in (second, first, second)]
    assert isinstance(found.facts["revision.weights"], Unknown)


def test_equal_object_ids_are_identical_and_nothing_is_read():
    chatglm = model("chatglm3-6b")
    old, new = Repository(chatglm.shards), Repository(chatglm.shards)
    found = compare(old, new)
    assert found.facts["revision.weights"] == "identical"
    assert found.equal == ("7 of 7 weight files by sha256 (12.5 GB)",)
    assert (old.read_paths, new.read_paths, old.ranges, new.ranges) == ([], [], [], [])


def test_the_same_bytes_under_other_names_are_moved_and_no_header_is_read():
    renamed = {f"moved-{file[6:]}": tensors for file, tensors in SMALL.items()}
    old, new = Repository(SMALL), Repository(renamed, with_index=False)
    found = compare(old, new)
    assert found.facts["revision.weights"] == "identical"
    assert only(found, "file-moved").count == 2
    assert not [path for path in (*old.read_paths, *new.read_paths) if path.endswith(".safetensors")]


def test_equal_headers_with_other_object_ids_are_other_values():
    found = compare(Repository(SMALL), Repository(SMALL, salt="trained on"))
    assert kinds(found) == ["values-changed"]
    assert found.facts["revision.weights"] == "changed"


def test_only_headers_of_changed_shards_are_read():
    first = next(iter(SMALL))
    old, new = Repository(SMALL), Repository(SMALL, salts={first: "trained on"})
    found = compare(old, new)
    assert (old.read_paths, new.read_paths) == ([first], [first])
    assert isinstance(found.facts["revision.parameters_new"], Unknown)


def test_files_without_object_ids_are_equal_by_header_alone_which_is_said_and_does_not_count():
    found = compare(Repository(SMALL, hashed=False), Repository(SMALL, hashed=False))
    assert kinds(found) == []
    assert isinstance(found.facts["revision.weights"], Unknown)
    assert "values were not compared" in found.equal[-1]
    assert ["only its header" in part.reason for part in found.unread] == [True, True]


def test_other_shards_with_the_same_tensors_lose_nothing():
    found = compare(Repository(SMALL), Repository(one_file(everything(SMALL))))
    assert kinds(found) == ["resharded"]
    assert (only(found, "resharded").before, only(found, "resharded").after) == ("2 files", "1 file")
    assert found.facts["revision.weights"] == "equal"


def test_other_shards_with_fewer_tensors_are_a_loss():
    left = without(one_file(everything(SMALL)), "model.layers.1.norm.weight")
    found = compare(Repository(SMALL), Repository(left))
    assert kinds(found) == ["resharded-with-loss"]
    assert only(found, "resharded-with-loss").symbol == "model.layers.{i}.norm.weight"


def test_float16_to_float32_is_one_change_with_both_sizes():
    chatglm = model("chatglm3-6b")
    wide = {f: {name: ("F32", shape) for name, (_, shape) in t.items()} for f, t in chatglm.shards.items()}
    found = compare(Repository(chatglm.shards), Repository(wide))
    change = only(found, "tensor-retyped")
    assert (change.before, change.after, change.count) == ("F16", "F32", 200)
    assert change.detail.startswith("12.5 GB → 25.0 GB")
    assert len(found.listing) == 11
    assert found.facts["revision.parameters_old"] == found.facts["revision.parameters_new"] == 6243584032


def phi(layout: str) -> Tensors:
    """The two layouts of phi-2, four layers of it."""
    tensors: Tensors = {}
    for number in range(4):
        if layout == "old":
            path, norm, out = f"transformer.h.{number}", "ln", "mixer.out_proj"
            projections = {"mixer.Wqkv": 96}
        else:
            path, norm, out = f"model.layers.{number}", "input_layernorm", "self_attn.dense"
            projections = {f"self_attn.{letter}_proj": 32 for letter in "qkv"}
        for name, rows in {**projections, out: 32, "mlp.fc1": 128}.items():
            tensors[f"{path}.{name}.weight"] = ("F16", (rows, 32))
            tensors[f"{path}.{name}.bias"] = ("F16", (rows,))
        tensors[f"{path}.{norm}.weight"] = tensors[f"{path}.{norm}.bias"] = ("F16", (32,))
    return tensors


def test_a_fused_projection_that_was_split_is_renamed_with_the_lora_targets():
    found = compare(Repository(one_file(phi("old"))), Repository(one_file(phi("new"))))
    assert kinds(found) == ["tensor-renamed"]
    change = only(found, "tensor-renamed")
    assert change.symbol == "transformer.h.{i}.mixer.Wqkv.weight"
    assert (change.before, change.after) == ("Wqkv, out_proj", "q_proj, k_proj, v_proj, dense")
    pairs = {pattern.before: pattern.after for pattern in found.listing}
    assert pairs["transformer.h.{i}.ln.bias"] == "model.layers.{i}.input_layernorm.bias"
    assert pairs["transformer.h.{i}.mixer.Wqkv.bias"].count(" + ") == 2


def test_projections_that_were_fused_are_renamed_too():
    found = compare(Repository(one_file(phi("new"))), Repository(one_file(phi("old"))))
    assert kinds(found) == ["tensor-renamed"]


def test_the_whole_of_glm_4_finds_its_names_again_in_the_hf_layout():
    found = compare(Repository(model("glm-4-9b-chat").shards), Repository(model("glm-4-9b-chat-hf").shards))
    assert kinds(found) == ["tensor-renamed", "tensor-removed", "resharded"]
    assert only(found, "tensor-removed").symbol == "transformer.rotary_pos_emb.inv_freq"
    assert len([pattern for pattern in found.listing if pattern.kind == "tensor-renamed"]) == 10


def test_a_prefix_before_every_name_keeps_the_modules_names():
    moved = {f: {f"language_model.{name}": s for name, s in t.items()} for f, t in SMALL.items()}
    found = compare(Repository(SMALL), Repository(moved))
    assert kinds(found) == ["tensor-path-renamed"]


def test_layers_counted_from_one_before_and_from_zero_now_are_the_same_layers():
    old = {f"layers.{number + 1}.mlp.weight": ("F32", (4, 4)) for number in range(3)}
    new = {f"blocks.{number}.ffn.weight": ("F32", (4, 4)) for number in range(3)}
    found = compare(Repository(one_file(old)), Repository(one_file(new)))
    assert kinds(found) == ["tensor-renamed"]


def test_tensors_of_other_shapes_are_no_rename():
    old, new = {"a.weight": ("F32", (4, 4))}, {"b.weight": ("F32", (4, 5))}
    found = compare(Repository(one_file(old)), Repository(one_file(new)))
    assert kinds(found) == ["tensor-removed", "tensor-added"]


def test_a_tensor_of_another_shape_is_reshaped():
    new = {**everything(SMALL), "model.layers.0.mlp.up_proj.weight": ("BF16", (32, 8))}
    found = compare(Repository(one_file(everything(SMALL))), Repository(one_file(new)))
    change = only(found, "tensor-reshaped")
    assert (change.before, change.after) == ("[16, 8]", "[32, 8]")


@pytest.mark.parametrize(("tie", "told"), [(True, "tied"), (False, "not tied"), (None, "not given")])
def test_a_head_that_is_gone_is_told_with_the_tying_of_the_configuration(tie, told):
    entries = {} if tie is None else {"tie_word_embeddings": tie}
    new = Repository(without(SMALL, "lm_head.weight"), config(**entries))
    found = compare(Repository(SMALL, config(tie_word_embeddings=False)), new)
    change = only(found, "head-gone")
    assert (change.symbol, change.before, change.after) == ("lm_head.weight", "not tied", told)


def test_the_tying_of_a_text_model_inside_another_counts():
    entries = {"text_config": {"tie_word_embeddings": True}}
    new = Repository(without(SMALL, "lm_head.weight"), config(**entries))
    assert only(compare(Repository(SMALL), new), "head-gone").after == "tied"


def test_a_head_that_came_is_told():
    old = Repository(without(SMALL, "lm_head.weight"), config(tie_word_embeddings=True))
    found = compare(old, Repository(SMALL, config(tie_word_embeddings=True)))
    assert only(found, "head-added").after == "tied"


def test_a_configuration_that_cannot_be_read_leaves_the_tying_unknown():
    new = Repository(without(SMALL, "lm_head.weight"), {"config.json": "<html>"})
    assert only(compare(Repository(SMALL), new), "head-gone").after == "not readable"


def test_more_rows_of_embedding_and_head_are_one_change():
    tensors = everything(SMALL)
    more = {**tensors, "model.embed_tokens.weight": ("BF16", (65, 8)), "lm_head.weight": ("BF16", (65, 8))}
    old, new = Repository(one_file(tensors), config()), Repository(one_file(more), config())
    found = compare(old, new)
    assert kinds(found) == ["embedding-rows", "rows-differ-from-config"]
    assert only(found, "embedding-rows").count == 2
    assert (only(found, "rows-differ-from-config").before, only(found, "rows-differ-from-config").after) == ("65", "64")


def test_a_dtype_that_older_safetensors_reject_is_told_with_the_release():
    tensors = everything(SMALL)
    new = {**tensors, "model.layers.0.mlp.up_proj.weight": ("F8_E8M0", (16, 8))}
    found = compare(Repository(one_file(tensors)), Repository(one_file(new)))
    change = only(found, "needs-newer-safetensors")
    assert (change.symbol, change.before, change.after) == ("F8_E8M0", "0.4.0", "0.6.1")
    assert found.facts["revision.safetensors_needs"] == "0.6.1"


@pytest.mark.parametrize("side", [0, 1])
def test_an_unreadable_header_makes_the_weights_unknown_and_removes_nothing(side):
    sides = [Repository(SMALL), Repository(SMALL, salt="x")]
    sides[side].broken["model-00002-of-00002.safetensors"] = "no answer in 60 s"
    found = compare(*sides)
    assert isinstance(found.facts["revision.weights"], Unknown)
    assert [item.path for item in found.unread] == ["model-00002-of-00002.safetensors"]
    assert kinds(found) == ["values-changed"]


def test_a_header_that_is_wrong_is_unread_with_its_reason():
    new = Repository(SMALL)
    new.prefixes["model-00001-of-00002.safetensors"] = b"<!DOCTYPE html><html>"
    new.files["model-00001-of-00002.safetensors"] = new.files["model-00001-of-00002.safetensors"]._replace(oid=None)
    found = compare(Repository(SMALL), new)
    assert found.unread[0].reason == "the file is a web page"


def test_an_index_that_names_tensors_its_shards_lack_is_told():
    extra = {file: dict(tensors) for file, tensors in SMALL.items()}
    extra["model-00002-of-00002.safetensors"]["mtp.fc.weight"] = ("BF16", (8, 8))
    new = Repository(SMALL, {"model.safetensors.index.json": index(extra)}, salt="x")
    change = only(compare(Repository(SMALL), new), "index-mismatch")
    assert (change.symbol, change.after, change.count) == ("mtp.fc.weight", "not in the file it names", 1)


def test_a_tensor_that_the_index_does_not_name_is_told():
    new = Repository(SMALL, {"model.safetensors.index.json": index(without(SMALL, "lm_head.weight"))}, salt="x")
    assert only(compare(Repository(SMALL), new), "index-mismatch").after == "not in the index"


def test_an_unchanged_index_of_unchanged_tensors_is_not_read():
    old, new = Repository(SMALL), Repository(SMALL, salt="x")
    compare(old, new)
    assert not [path for path in (*old.read_paths, *new.read_paths) if path.endswith(".json")]


def test_a_shard_that_its_numbering_promises_and_shards_without_index_are_told():
    shards = {file.replace("00002.", "00003."): tensors for file, tensors in SMALL.items()}
    found = compare(Repository(SMALL), Repository(shards, with_index=False, salt="x"))
    assert only(found, "shard-missing").symbol == "model-00003-of-00003.safetensors"
    assert only(found, "index-missing").count == 2


def bin_repository(tensors: Tensors, **shared: str) -> Repository:
    names = {name.replace("__", "."): of.replace("__", ".") for name, of in shared.items()}
    return Repository(texts={"pytorch_model.bin": zip_checkpoint(state_pickle(tensors, shared=names))})


def test_safetensors_that_replace_a_pickle_are_compared_with_it():
    tensors = everything(SMALL)
    found = compare(bin_repository(tensors), Repository(one_file(tensors)))
    assert kinds(found) == ["set-replaced"]
    assert found.facts["revision.weights"] == "equal"


def test_a_tied_head_that_only_the_pickle_names_is_not_gone():
    tensors = everything(SMALL)
    old = bin_repository(tensors, lm_head__weight="model__embed_tokens__weight")
    found = compare(old, Repository(one_file(without(SMALL, "lm_head.weight") and tensors)))
    assert kinds(found) == ["set-replaced"]
    found = compare(old, Repository(one_file({n: s for n, s in tensors.items() if n != "lm_head.weight"})))
    assert kinds(found) == ["set-replaced"]


def test_two_pickles_are_compared_by_their_tensors():
    tensors = {name: ("F16", shape) for name, (_, shape) in everything(SMALL).items()}
    wide = {name: ("F32", shape) for name, (_, shape) in tensors.items()}
    found = compare(bin_repository(tensors), bin_repository(wide))
    assert (only(found, "tensor-retyped").before, only(found, "tensor-retyped").after) == ("F16", "F32")


def test_a_pickle_whose_names_cannot_be_read_is_unknown():
    old, new = bin_repository(everything(SMALL)), Repository(texts={"pytorch_model.bin": b"\x80\x02" + b"K\x01" * 30})
    found = compare(old, new)
    assert isinstance(found.facts["revision.weights"], Unknown)


def test_safetensors_added_beside_an_unchanged_copy_of_them_say_what_is_loaded_now():
    tensors = everything(SMALL)
    old = bin_repository(tensors)
    new = Repository(one_file(tensors), {"pytorch_model.bin": old.prefixes["pytorch_model.bin"]})
    assert kinds(compare(old, new)) == ["set-replaced"]


def test_another_precision_beside_the_weights_is_a_set_of_its_own():
    half = {name: ("F16", shape) for name, (_, shape) in everything(SMALL).items()}
    old = Repository(one_file(everything(SMALL)))
    new = Repository({**one_file(everything(SMALL)), "model.fp16.safetensors": half}, with_index=False)
    found = compare(old, new)
    assert kinds(found) == ["set-added"]
    assert found.facts["revision.weights"] == "equal"


def test_repositories_without_weights_have_nothing_to_say():
    found = compare(Repository(texts=config()), Repository(texts=config()))
    assert found.facts == {"revision.weights": "none"}


def test_a_gguf_file_is_compared_by_its_object_id():
    found = compare(Repository(texts={"m.gguf": "a"}), Repository(texts={"m.gguf": "b"}))
    assert kinds(found) == ["opaque-changed"]


def test_amounts_are_counted_by_dtype_and_by_module():
    chatglm = model("chatglm3-6b")
    amounts = compare(Repository(chatglm.shards), Repository(chatglm.shards, salt="x")).amounts["new"]
    assert amounts["dtype"] == {"F16": (200, 6243584032, 12487168064)}
    assert next(iter(amounts["module"])) == "transformer.encoder.layers.{i}.mlp"
    assert sum(size for _, _, size in amounts["module"].values()) == 12487168064


@pytest.mark.slow
def test_deepseek_v3_with_68_changed_shards_reads_68_headers():
    deepseek = model("deepseek-v3")
    changed = sorted(deepseek.shards)[:68]
    old = Repository(deepseek.shards)
    new = old.with_other_weights(changed)
    found = compare(old, new)
    assert old.read_paths == new.read_paths == changed
    assert only(found, "values-changed").count == 68


@pytest.mark.slow
def test_all_of_deepseek_v3_takes_little_memory():
    deepseek = model("deepseek-v3")
    wide = {f: {name: ("BF16", shape) for name, (_, shape) in t.items()} for f, t in deepseek.shards.items()}
    old, new = Repository(deepseek.shards), Repository(wide)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = compare(old, new)
    assert {change.before for change in found.changes} == {"F32", "F8_E4M3"}
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 300


def test_a_hostile_number_of_patterns_ends_soon():
    letters = "abcdefghij"
    names = [f"{a}{b}{c}" for a in letters for b in letters for c in letters]
    old = {f"x{name}.weight": ("F32", (2, 2)) for name in names}
    new = {f"y{name}.weight": ("F32", (2, 2)) for name in names}
    found = compare(Repository(one_file(old)), Repository(one_file(new)))
    assert only(found, "tensor-renamed").count == 1000
