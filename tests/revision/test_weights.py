"""Weights are compared by object ids and headers: what is said of each kind of change, and what is not read for it."""

import json
import resource

import pytest
from comparing import outcome
from header_true import Repository, Tensors, index, model
from rooms import comparer
from torch_files import state_pickle, zip_checkpoint

from envdoctor.facts import Unknown
from envdoctor.revision import TOO_LONG, Change, Clock, Compared, open_folder

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


ALL = {name: spec for shard in SMALL.values() for name, spec in shard.items()}


def without(shards: dict[str, Tensors], *gone: str) -> dict[str, Tensors]:
    return {file: {n: s for n, s in tensors.items() if n not in gone} for file, tensors in shards.items()}


def whole(tensors: Tensors, **more: object) -> Repository:
    """A repository with one file of tensors."""
    return Repository(one_file(tensors), **more)  # type: ignore[arg-type]


def bin_repository(tensors: Tensors, **shared: str) -> Repository:
    names = {name.replace("__", "."): of.replace("__", ".") for name, of in shared.items()}
    return Repository(texts={"pytorch_model.bin": zip_checkpoint(state_pickle(tensors, shared=names))})


def compare(old: Repository, new: Repository) -> Compared:
    return outcome(tensors, old, new)


def kinds(found: Compared) -> list[str]:
    return [change.kind for change in found.changes]


def only(found: Compared, kind: str) -> Change:
    (change,) = [change for change in found.changes if change.kind == kind]
    return change


def says(old: Repository, new: Repository, kind: str, **columns: object) -> None:
    change = only(compare(old, new), kind)
    assert {name: getattr(change, name) for name in columns} == columns


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


def test_only_headers_of_changed_shards_are_read():
    first = next(iter(SMALL))
    old, new = Repository(SMALL), Repository(SMALL, salts={first: "trained on"})
    found = compare(old, new)
    assert (old.read_paths, new.read_paths) == ([first], [first]), "nor is an index of unchanged tensors"
    assert isinstance(found.facts["revision.parameters_new"], Unknown)


def test_files_without_object_ids_are_equal_by_header_alone_which_is_said_and_does_not_count():
    found = compare(Repository(SMALL, hashed=False), Repository(SMALL, hashed=False))
    assert kinds(found) == []
    assert isinstance(found.facts["revision.weights"], Unknown)
    assert "values were not compared" in found.equal[-1]
    assert ["only its header" in part.reason for part in found.unread] == [True, True]


@pytest.mark.parametrize("side", [0, 1])
def test_an_unreadable_header_makes_the_weights_unknown_and_removes_nothing(side):
    sides = [Repository(SMALL), Repository(SMALL, salt="x")]
    sides[side].broken["model-00002-of-00002.safetensors"] = "no answer in 60 s"
    found = compare(*sides)
    assert isinstance(found.facts["revision.weights"], Unknown)
    assert [item.path for item in found.unread] == ["model-00002-of-00002.safetensors"]
    assert kinds(found) == ["values-changed", "unread-changed"]


def test_a_header_that_is_wrong_is_unread_with_its_reason():
    new = Repository(SMALL)
    new.prefixes["model-00001-of-00002.safetensors"] = b"<!DOCTYPE html><html>"
    new.files["model-00001-of-00002.safetensors"] = new.files["model-00001-of-00002.safetensors"]._replace(oid=None)
    assert compare(Repository(SMALL), new).unread[0].reason == "the file is a web page"


RESHAPED = {**ALL, "model.layers.0.mlp.up_proj.weight": ("BF16", (32, 8))}
PREFIXED = {f: {f"language_model.{name}": s for name, s in t.items()} for f, t in SMALL.items()}
FROM_ONE = {f"layers.{number + 1}.mlp.weight": ("F32", (4, 4)) for number in range(3)}
FROM_ZERO = {f"blocks.{number}.ffn.weight": ("F32", (4, 4)) for number in range(3)}
HALF = {name: ("F16", shape) for name, (_, shape) in ALL.items()}
TWO_SETS = Repository({**one_file(ALL), "model.fp16.safetensors": HALF}, with_index=False)
TIED = bin_repository(ALL, lm_head__weight="model__embed_tokens__weight")
NO_HEAD = without(one_file(ALL), "lm_head.weight")["model.safetensors"]


@pytest.mark.parametrize(
    ("old", "new", "told", "weights"),
    [
        (Repository(SMALL), Repository(SMALL, salt="x"), ["values-changed"], "changed"),
        (Repository(SMALL), whole(ALL), ["resharded"], "equal"),
        (whole(phi("new")), whole(phi("old")), ["tensor-renamed"], None),
        (Repository(SMALL), Repository(PREFIXED), ["tensor-path-renamed"], None),
        (whole(FROM_ONE), whole(FROM_ZERO), ["tensor-renamed"], None),
        (whole({"a": ("F32", (4, 4))}), whole({"b": ("F32", (4, 5))}), ["tensor-removed", "tensor-added"], None),
        (bin_repository(ALL), whole(ALL), ["set-replaced"], "equal"),
        (TIED, whole(ALL), ["set-replaced"], None),
        (TIED, whole(NO_HEAD), ["set-replaced"], None),
        (bin_repository(ALL), whole(ALL, texts=dict(bin_repository(ALL).prefixes)), ["set-replaced"], None),
        (whole(ALL), TWO_SETS, ["set-added"], "equal"),
        (Repository(texts=config()), Repository(texts=config()), [], "none"),
        (Repository(texts={"m.gguf": "a"}), Repository(texts={"m.gguf": "b"}), ["opaque-changed"], None),
    ],
)
def test_what_changed_and_whether_the_weights_did(old, new, told, weights):
    found = compare(old, new)
    assert kinds(found) == told
    assert weights is None or found.facts["revision.weights"] == weights


def test_a_change_says_what_it_was():
    says(Repository(SMALL), whole(ALL), "resharded", before="2 files", after="1 file")
    fewer = Repository(without(one_file(ALL), "model.layers.1.norm.weight"))
    assert kinds(compare(Repository(SMALL), fewer)) == ["resharded-with-loss"]
    says(Repository(SMALL), fewer, "resharded-with-loss", symbol="model.layers.{i}.norm.weight")
    says(whole(ALL), whole(RESHAPED), "tensor-reshaped", before="[16, 8]", after="[32, 8]")
    wide = {name: ("F32", shape) for name, (_, shape) in HALF.items()}
    says(bin_repository(HALF), bin_repository(wide), "tensor-retyped", before="F16", after="F32")


def test_float16_to_float32_is_one_change_with_both_sizes():
    chatglm = model("chatglm3-6b")
    wide = {f: {name: ("F32", shape) for name, (_, shape) in t.items()} for f, t in chatglm.shards.items()}
    found = compare(Repository(chatglm.shards), Repository(wide))
    change = only(found, "tensor-retyped")
    assert (change.before, change.after, change.count) == ("F16", "F32", 200)
    assert change.detail.startswith("12.5 GB → 25.0 GB")
    assert len(found.listing) == 11
    assert found.facts["revision.parameters_old"] == found.facts["revision.parameters_new"] == 6243584032


def test_a_fused_projection_that_was_split_is_renamed_with_the_lora_targets():
    found = compare(whole(phi("old")), whole(phi("new")))
    assert kinds(found) == ["tensor-renamed"]
    change = only(found, "tensor-renamed")
    assert change.symbol == "transformer.h.{i}.mixer.Wqkv.weight"
    assert (change.before, change.after) == ("Wqkv, out_proj", "q_proj, k_proj, v_proj, dense")
    pairs = {pattern.before: pattern.after for pattern in found.listing}
    assert pairs["transformer.h.{i}.ln.bias"] == "model.layers.{i}.input_layernorm.bias"
    assert pairs["transformer.h.{i}.mixer.Wqkv.bias"].count(" + ") == 2


def test_the_whole_of_glm_4_finds_its_names_again_in_the_hf_layout():
    found = compare(Repository(model("glm-4-9b-chat").shards), Repository(model("glm-4-9b-chat-hf").shards))
    assert kinds(found) == ["tensor-renamed", "tensor-removed", "resharded"]
    assert only(found, "tensor-removed").symbol == "transformer.rotary_pos_emb.inv_freq"
    assert len([pattern for pattern in found.listing if pattern.kind == "tensor-renamed"]) == 10


def test_a_head_that_went_or_came_is_told_with_the_tying_of_the_configuration():
    tied, headless = {"tie_word_embeddings": True}, without(SMALL, "lm_head.weight")
    old = Repository(SMALL, config(tie_word_embeddings=False))
    for entries, after in (
        *((tied, "tied"), ({"tie_word_embeddings": False}, "not tied"), ({}, "not given")),
        ({"text_config": tied}, "tied"),
    ):
        new = Repository(headless, config(**entries))
        says(old, new, "head-gone", symbol="lm_head.weight", before="not tied", after=after)
    left_out = compare(Repository(SMALL, config(**tied)), Repository(headless, config(**tied)))
    assert only(left_out, "tied-head-left-out").symbol == "lm_head.weight"
    says(Repository(SMALL), Repository(headless, {"config.json": "<html>"}), "head-gone", after="not readable")
    says(Repository(headless, config(**tied)), Repository(SMALL, config(**tied)), "head-added", after="tied")
    says(whole({"layers.0.output.weight": ("BF16", (8, 8))}), whole({}), "head-gone", symbol="layers.{i}.output.weight")


def test_more_rows_of_embedding_and_head_are_one_change():
    more = {**ALL, "model.embed_tokens.weight": ("BF16", (65, 8)), "lm_head.weight": ("BF16", (65, 8))}
    old, new = whole(ALL, texts=config()), whole(more, texts=config())
    assert kinds(compare(old, new)) == ["embedding-rows", "rows-differ-from-config"]
    says(old, new, "embedding-rows", count=2)
    says(old, new, "rows-differ-from-config", before="65", after="64")


def test_a_dtype_that_older_safetensors_reject_is_told_with_the_release():
    new = whole({**ALL, "model.layers.0.mlp.up_proj.weight": ("F8_E8M0", (16, 8))})
    assert compare(whole(ALL), new).facts["revision.safetensors_needs"] == "0.6.1"


def test_an_index_that_does_not_fit_its_shards_is_told():
    extra = {file: dict(tensors) for file, tensors in SMALL.items()}
    extra["model-00002-of-00002.safetensors"]["mtp.fc.weight"] = ("BF16", (8, 8))
    for named, columns in (
        (extra, {"symbol": "mtp.fc.weight", "after": "not in the file it names", "count": 1}),
        (without(SMALL, "lm_head.weight"), {"after": "not in the index"}),
    ):
        new = Repository(SMALL, {"model.safetensors.index.json": index(named)}, salt="x")
        says(Repository(SMALL), new, "index-mismatch", **columns)
    shards = {file.replace("00002.", "00003."): tensors for file, tensors in SMALL.items()}
    new = Repository(shards, with_index=False, salt="x")
    says(Repository(SMALL), new, "shard-missing", symbol="model-00003-of-00003.safetensors")
    says(Repository(SMALL), new, "index-missing", count=2)


def test_a_numbering_of_more_shards_than_are_looked_for_is_unread():
    shards = [{file.replace("00002.", f"{most}."): held for file, held in SMALL.items()} for most in ("04096", "04097")]
    says(Repository(SMALL), Repository(shards[0], salt="x"), "shard-missing", count=4094)
    (unread,) = compare(Repository(SMALL), Repository(shards[1], salt="x")).unread
    assert unread == (min(shards[1]), "it is one of 04097 shards; at most 4096 are looked for")


def test_an_index_that_names_a_missing_shard_is_told_beside_shards_that_did_not_change():
    named = {**SMALL, "model-00003-of-00003.safetensors": {"mtp.fc.weight": ("BF16", (8, 8))}}
    new = Repository(SMALL, {"model.safetensors.index.json": index(named)})
    assert compare(Repository(SMALL), new).facts["revision.weights"] == "identical"
    columns = {"symbol": "mtp.fc.weight", "after": "in a file that is not there", "count": 1}
    says(Repository(SMALL), new, "index-mismatch", **columns)


def test_weights_that_are_gone_are_more_than_a_set_that_went():
    assert kinds(compare(whole(ALL), Repository(texts=config()))) == ["weights-gone"]
    assert kinds(compare(TWO_SETS, whole(ALL))) == ["set-removed"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"format": "pt"}, None, ("format-lost", "pt", "no metadata")),
        ({"format": "pt"}, {}, ("format-lost", "pt", "no format")),
        ({"format": "pt"}, {"format": "\x1b[31m"}, ("format-lost", "pt", "unknown format")),
        ({"format": "pt"}, {"format": "mlx"}, ("metadata-changed", "pt", "mlx")),
        (None, {"format": "pt"}, ("metadata-changed", "no metadata", "pt")),
        ({"format": "pt"}, {"format": "pt", "step": "1"}, ("metadata-changed", "pt", "pt")),
    ],
)
def test_who_wrote_a_file_is_in_its_header(tmp_path, before, after, told):
    sides = []
    for name, metadata in (("old", before), ("new", after)):
        folder = tmp_path / name
        folder.mkdir()
        about = {} if metadata is None else {"__metadata__": metadata}
        header = json.dumps({**about, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        content = len(header).to_bytes(8, "little") + header + bytes(8)
        (folder / "model.safetensors").write_bytes(content)
        sides.append(open_folder(str(folder)))
    (change,) = compare(*sides).changes
    assert (change.kind, change.before, change.after) == told


def test_pointers_of_lfs_tell_that_the_content_changed():
    old, new = (Repository(SMALL, salt=salt) for salt in ("a", "b"))
    for side in (old, new):
        side.broken |= dict.fromkeys(SMALL, "the folder holds its LFS pointer only")
    found = compare(old, new)
    assert kinds(found) == ["unread-changed", "unread-changed"]
    assert isinstance(found.facts["revision.weights"], Unknown) and len(found.unread) == 4


def test_a_pickle_whose_names_cannot_be_read_is_unknown():
    new = Repository(texts={"pytorch_model.bin": b"\x80\x02" + b"K\x01" * 30})
    assert isinstance(compare(bin_repository(ALL), new).facts["revision.weights"], Unknown)


def test_amounts_are_counted_by_dtype_and_by_module():
    chatglm = model("chatglm3-6b")
    amounts = compare(Repository(chatglm.shards), Repository(chatglm.shards, salt="x")).amounts["new"]
    assert amounts["dtype"] == {"F16": (200, 6243584032, 12487168064)}
    assert next(iter(amounts["module"])) == "transformer.encoder.layers.{i}.mlp"
    assert sum(size for _, _, size in amounts["module"].values()) == 12487168064


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
