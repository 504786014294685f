"""config.json by meaning: aliases, defaults, rotary settings, quantisation, hostile files."""

import json
from typing import Any

import pytest
from comparing import holds, only, outcome, two_sided
from header_true import Repository
from hypothesis import given
from hypothesis import strategies as st
from rooms import comparer
from tables import rows

from envdoctor.revision import Change, Compared, flatten

config = comparer("config")
compare, changed = two_sided("config", lambda side: {"config.json": side})

KEY = "max_position_embeddings"
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0}
QWEN = {"model_type": "qwen2", "use_sliding_window": False}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def test_files_without_object_ids_are_read_and_compared() -> None:
    old = Repository(texts={"config.json": LLAMA}, unhashed=["config.json"])
    assert outcome(config, old, {"config.json": LLAMA}).equal == ("config.json",)
    assert old.read_paths == ["config.json"]


@rows("before after")
def test_two_spellings_of_one_setting_are_no_change_of_value(before: Any, after: Any) -> None:
    compared = compare({"model_type": "x", **before}, {"model_type": "x", **after})
    assert {change.kind for change in compared.changes} <= {"key-renamed"}
    assert compared.equal == ("config.json",)


@rows("key before after kind")
def test_a_changed_key_has_the_kind_of_its_group(key: str, before: Any, after: Any, kind: str) -> None:
    changed({key: before}, {key: after}, f"{kind} {key}")


@rows("before after expected")
def test_what_a_value_means(before: Any, after: Any, expected: str | None) -> None:
    rows = expected.format(KEY).split(" | ") if expected else []
    changed({"x": 1, **before}, {"x": 1, **after}, *rows)


OWN = {"auto_map": {"AutoConfig": "c.C", "AutoModel": "m.M"}, "model_type": "own"}
CODE = {"c.py": "class C: ...", "m.py": "def f(config): return config.rope_ratio"}


@pytest.mark.parametrize(
    ("config_files", "key", "kind"),
    [
        (CODE, "rotary_percent", "unread-key"),
        (CODE, "rope_ratio", "rope-changed"),
        (CODE, "tie_word_embeddings", "tie-changed"),  # transformers itself reads it
        ({}, "rotary_percent", "rope-changed"),
        ({**CODE, "visual.py": "def f(adapters=4): ..."}, "adapters", "computation-changed"),
        ({**CODE, "configuration_own.py": "def f(adapters=4): ..."}, "adapters", "key-changed"),
        ({**CODE, "visual.py": "def f(use_cache): ..."}, "use_cache", "key-changed"),
        ({**CODE, "a.py": "# \0", "visual.py": "def f(adapters=4): ..."}, "adapters", "computation-changed"),
        ({f"m{number}.py": "" for number in range(30)}, "rotary_percent", "rope-changed"),  # too many to look at
    ],
)
def test_a_key_that_no_code_of_the_model_reads_has_no_effect(config_files: Any, key: str, kind: str) -> None:
    old, new = ({"config.json": {**OWN, key: value}, **config_files} for value in (1, 2))
    holds(outcome(config, old, new), f"{kind} {key}")
    elsewhere = (
        {**side, "config.json": {**side["config.json"], "auto_map": {"AutoConfig": "a/b--c.C"}}} for side in (old, new)
    )
    assert only(outcome(config, *elsewhere)).kind != "unread-key"


def test_a_retyped_model_says_before_and_after() -> None:
    change = only(compare({"torch_dtype": "bfloat16"}, {"dtype": "float32"}))
    assert change == Change("config", "dtype-changed", "config.json", "dtype", "bfloat16", "float32")
    both = {"dtype": "float16", "torch_dtype": "bfloat16"}
    changed({"dtype": "float16"}, both, "key-added torch_dtype: None -> bfloat16")


def test_nested_parts_keep_their_dotted_name() -> None:
    old, new = {"text_config": {"rope_theta": 1e4}}, {"text_config": {"rope_theta": 1e6}}
    changed(old, new, "rope-changed text_config.rope_theta")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}, "key-renamed {}"),
        ({"type": "su"}, {"type": "longrope"}, "rope-changed {}: su -> longrope"),
        (None, {"rope_type": "default"}, None),
    ],
)
def test_type_and_rope_type_are_one_key(old: Any, new: Any, expected: str | None) -> None:
    rows = [expected.format("rope_scaling.rope_type")] if expected else []
    changed({"rope_scaling": old}, {"rope_scaling": new}, *rows)


def test_rope_parameters_with_the_same_values_are_a_move() -> None:
    new = {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    del new["rope_theta"]
    moved = "rope-moved rope_theta: rope_theta -> rope_parameters.rope_theta"
    changed({**LLAMA, "rope_scaling": None}, new, moved)
    changed({"rope_theta": 10000.0}, {"rope_parameters": {"rope_theta": 500000.0}}, "rope-changed")
    linear = {"rope_type": "linear", "factor": 8.0}
    old = {"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": linear}
    full, sliding = {**linear, "rope_theta": 1000000.0}, {"rope_type": "default", "rope_theta": 10000.0}
    by_kind = {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}
    assert {change.kind for change in compare(old, by_kind).changes} == {"rope-moved"}


@pytest.mark.parametrize(
    ("old", "more", "expected"),
    [
        (LLAMA, {"attention_bias": False}, "implicit attention_bias"),
        ({"model_type": "own"}, {"attention_bias": False}, "computation-changed attention_bias"),
        ({}, {"sliding_window": None}, "key-added sliding_window"),
        ({"model_type": "llama"}, {"rope_theta": 5e5}, "rope-changed rope_theta: 10000.0 {} -> 500000.0"),
        ({"model_type": "mistral"}, {"sliding_window": None}, "sliding-window-changed sliding_window: 4096 {} -> null"),
        (LLAMA, {"head_dim": 128}, "implicit head_dim"),  # it follows from the sizes
        (LLAMA, {"head_dim": 64}, "size-changed head_dim"),
        (LLAMA, {"num_key_value_heads": 32}, "implicit num_key_value_heads"),  # as many as heads
        (LLAMA, {"num_key_value_heads": 8}, "size-changed num_key_value_heads: 32 {} -> 8"),
        (LLAMA, {"layer_types": ["full_attention"] * 32}, "implicit layer_types"),
    ],
)
def test_a_key_that_appears_is_compared_with_the_default_of_the_class(old: Any, more: Any, expected: str) -> None:
    changed(old, {**old, **more}, expected.format("(the class's default)"))


def test_a_window_that_is_switched_off_in_both_has_no_effect() -> None:
    compared = compare({**QWEN, "sliding_window": 131072}, {**QWEN, "sliding_window": 32768})
    holds(compared, "without-effect sliding_window")
    assert compared.equal == ("config.json",)


def test_quantisation_that_comes_or_goes_as_a_whole_is_one_change() -> None:
    short = "fp8, e4m3, weight_block_size [128, 128]"
    changed({}, {"quantization_config": FP8}, f"quantization-added quantization_config: None -> {short}")
    part = {"hidden_size": 8}
    changed({"text_config": {"quantization_config": FP8, **part}}, {"text_config": part}, "quantization-removed")
    new = {"quantization_config": {**FP8, "scale_fmt": "ue8m0"}}
    changed({"quantization_config": FP8}, new, "quantization-changed quantization_config.scale_fmt")


def test_every_configuration_is_compared() -> None:
    holds(outcome(config, {}, {"adapter_config.json": {"r": 8}}), "config-added adapter_config.json")
    old, new = ({"text_encoder/config.json": {"dtype": dtype}} for dtype in ("float16", "float32"))
    assert outcome(config, old, new).changes[0].path == "text_encoder/config.json"
    assert outcome(config, {}, {}) == Compared()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[1, 2]", "a list"),
        (b'"text"', "text"),
        (b"null", "null"),
        (b"{", "not JSON"),
        (b"<html></html>", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested more than"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "too long"),
        (b" " * (16 << 20) + b"{}", "bytes"),
        (b'{"a": 1' + b"," + b",".join(b'"k%d": 1' % n for n in range(6000)) + b"}", "keys"),
    ],
)
def test_what_cannot_be_read_is_unread_and_never_equal(content: bytes, reason: str) -> None:
    compared = compare(LLAMA, content)
    assert compared.changes == () and compared.equal == ()
    assert reason in compared.unread[0].reason


def test_a_file_that_cannot_be_fetched_is_unread() -> None:
    new = Repository(texts={"config.json": "{}"}, broken={"config.json": "the Hub did not answer in time"})
    compared = outcome(config, {"config.json": LLAMA}, new)
    assert compared == Compared(unread=(("config.json", "the Hub did not answer in time"),))


def test_odd_contents_are_survived_and_shown_harmless() -> None:
    last = b'{"vocab_size": 1, "vocab_size": 2}'
    changed({"vocab_size": 1}, last, "vocab-changed vocab_size: 1 -> 2", "repeated-key vocab_size")
    after = only(compare({"x": "a"}, {"x": "\x1b[31m" + "b" * 10_000})).after
    assert after is not None and "\x1b" not in after and len(after) <= 100
    odd = {"rope_scaling": [1], "rope_parameters": "x", "quantization_config": 3, "layer_types": {}, "auto_map": []}
    assert compare({**LLAMA}, {**LLAMA, **odd}).changes
    assert compare({"rope_parameters": {"full_attention": None}}, {"rope_parameters": {}}) is not None


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=4), st.lists, max_leaves=5))
def test_any_value_equals_itself(value: Any) -> None:
    assert compare({"x": value}, json.dumps({"x": value}, indent=1)).changes == ()


NAMES = ["rope_theta", "type", "rope_type", "full_attention", "x"]


@given(
    st.dictionaries(
        st.sampled_from(["rope_scaling", "rope_parameters", "dtype", "text_config", *NAMES[:-1]]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner),
            max_leaves=6,
        ),
    )
)
def test_any_table_can_be_flattened(table: dict[str, Any]) -> None:
    flatten(table, {"torch_dtype": "dtype"})


@given(st.binary(max_size=200))
def test_any_bytes_can_be_parsed_or_refused(content: bytes) -> None:
    compared = compare(LLAMA, content)
    assert compared.unread or compared.changes
