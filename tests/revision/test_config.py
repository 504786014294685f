"""config.json by meaning: aliases, defaults, rotary settings, quantisation, hostile files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import outcome
from hypothesis import given
from hypothesis import strategies as st
from rooms import comparer

from envdoctor.revision import Change, Compared, flatten
from envdoctor.revision.json_files import parse_json

config = comparer("config")

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0}


@pytest.fixture
def compare(snapshot: Callable[..., Any]) -> Callable[..., Compared]:
    def run(old: Any, new: Any) -> Compared:
        return outcome(config, snapshot({"config.json": old}), snapshot({"config.json": new}))

    return run


def kinds(compared: Compared) -> list[tuple[str, str]]:
    return [(change.kind, change.symbol) for change in compared.changes]


def only(compared: Compared) -> Change:
    assert len(compared.changes) == 1, compared.changes
    return compared.changes[0]


def test_equal_files_are_not_read(snapshot: Callable[..., Any]) -> None:
    old, new = snapshot({"config.json": LLAMA}), snapshot({"config.json": LLAMA})
    compared = outcome(config, old, new)
    assert compared == Compared(equal=("config.json",))
    assert old.reads == new.reads == []


def test_files_without_object_ids_are_read_and_compared(snapshot: Callable[..., Any]) -> None:
    old = snapshot({"config.json": LLAMA}, unhashed=["config.json"])
    assert outcome(config, old, snapshot({"config.json": LLAMA})).equal == ("config.json",)
    assert old.reads == ["config.json"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"torch_dtype": "float16"}, {"dtype": "float16"}),
        ({"torch_dtype": "torch.float16"}, {"torch_dtype": "float16"}),
        ({"num_layers": 28}, {"num_hidden_layers": 28}),
        ({"multi_query_group_num": 2}, {"num_key_value_heads": 2}),
        ({"padded_vocab_size": 65024}, {"vocab_size": 65024}),
        ({"seq_length": 8192}, {"max_position_embeddings": 8192}),
        ({"eos_token_id": 2}, {"eos_token_id": [2]}),
        ({"rms_norm_eps": 1e-05}, {"rms_norm_eps": 0.00001}),
        ({"factor": 1}, {"factor": 1.0}),
    ],
)
def test_two_spellings_of_one_setting_are_no_change_of_value(compare: Any, before: Any, after: Any) -> None:
    compared = compare({"model_type": "x", **before}, {"model_type": "x", **after})
    assert {kind for kind, _ in kinds(compared)} <= {"key-renamed"}
    assert compared.equal == ("config.json",)


def test_true_and_1_are_different(compare: Any) -> None:
    assert kinds(compare({"use_cache": 1}, {"use_cache": True})) == [("key-changed", "use_cache")]


def test_both_spellings_with_different_values_are_kept_apart(compare: Any) -> None:
    compared = compare({"dtype": "float16"}, {"dtype": "float16", "torch_dtype": "bfloat16"})
    change = only(compared)
    assert (change.symbol, change.after) == ("torch_dtype", "bfloat16")


def test_a_retyped_model_says_before_and_after(compare: Any) -> None:
    change = only(compare({"torch_dtype": "bfloat16"}, {"dtype": "float32"}))
    assert change == Change("config", "dtype-changed", "config.json", "dtype", "bfloat16", "float32")


@pytest.mark.parametrize(
    ("key", "before", "after", "kind"),
    [
        ("sliding_window", 4096, None, "sliding-window-changed"),
        ("hidden_act", "gelu", "gelu_pytorch_tanh", "activation-changed"),
        ("tie_word_embeddings", True, False, "tie-changed"),
        ("vocab_size", 32000, 32001, "vocab-changed"),
        ("architectures", ["A"], ["B"], "architecture-changed"),
        ("model_type", "glm", "glm4", "model-type-changed"),
        ("attn_implementation", "eager", "sdpa", "attention-implementation-changed"),
        ("eos_token_id", [1, 2], [1, 2, 3], "token-id-changed"),
        ("rms_norm_eps", 1e-5, 1e-6, "norm-changed"),
        ("rope_theta", 10000.0, 1000000.0, "rope-changed"),
        ("original_rope", True, False, "rope-changed"),
        ("num_local_experts", 8, 16, "size-changed"),
        ("anything_else", "a", "b", "key-changed"),
        ("_name_or_path", "a", "b", "noise"),
    ],
)
def test_a_changed_key_has_the_kind_of_its_group(compare: Any, key: str, before: Any, after: Any, kind: str) -> None:
    assert kinds(compare({key: before}, {key: after})) == [(kind, key)]


def test_nested_parts_keep_their_dotted_name(compare: Any) -> None:
    compared = compare({"text_config": {"rope_theta": 1e4}}, {"text_config": {"rope_theta": 1e6}})
    assert kinds(compared) == [("rope-changed", "text_config.rope_theta")]


class TestRope:
    def test_type_and_rope_type_are_one_key(self, compare: Any) -> None:
        compared = compare(
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        )
        assert kinds(compared) == [("key-renamed", "rope_scaling.rope_type")]

    def test_su_became_longrope(self, compare: Any) -> None:
        change = only(compare({"rope_scaling": {"type": "su"}}, {"rope_scaling": {"type": "longrope"}}))
        assert (change.kind, change.before, change.after) == ("rope-changed", "su", "longrope")

    def test_rope_parameters_with_the_same_values_are_a_move(self, compare: Any) -> None:
        new = {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
        del new["rope_theta"]
        change = only(compare({**LLAMA, "rope_scaling": None}, new))
        assert (change.kind, change.symbol) == ("rope-moved", "rope_theta")
        assert (change.before, change.after) == ("rope_theta", "rope_parameters.rope_theta")

    def test_a_value_that_changed_in_the_move_is_a_change(self, compare: Any) -> None:
        change = only(compare({"rope_theta": 10000.0}, {"rope_parameters": {"rope_theta": 500000.0}}))
        assert change.kind == "rope-changed"

    def test_parameters_per_kind_of_layer(self, compare: Any) -> None:
        old = {
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        }
        new = {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            }
        }
        assert {kind for kind, _ in kinds(compare(old, new))} == {"rope-moved"}

    def test_no_scaling_and_default_scaling_are_the_same(self, compare: Any) -> None:
        assert not compare({"rope_scaling": None}, {"rope_scaling": {"rope_type": "default"}}).changes


class TestDefaults:
    def test_a_key_that_appears_with_the_default_of_the_class_is_implicit(self, compare: Any) -> None:
        change = only(compare(LLAMA, {**LLAMA, "attention_bias": False}))
        assert (change.kind, change.symbol) == ("implicit", "attention_bias")

    def test_a_key_that_appears_with_another_value_replaces_the_default(self, compare: Any) -> None:
        change = only(compare({"model_type": "llama"}, {"model_type": "llama", "rope_theta": 500000.0}))
        assert (change.kind, change.before) == ("rope-changed", "10000.0 (the class's default)")

    def test_null_is_not_the_default_of_a_window(self, compare: Any) -> None:
        change = only(compare({"model_type": "mistral"}, {"model_type": "mistral", "sliding_window": None}))
        assert (change.kind, change.after) == ("sliding-window-changed", "null")

    def test_head_dim_that_follows_from_the_sizes_is_implicit(self, compare: Any) -> None:
        assert kinds(compare(LLAMA, {**LLAMA, "head_dim": 128})) == [("implicit", "head_dim")]
        assert kinds(compare(LLAMA, {**LLAMA, "head_dim": 64})) == [("size-changed", "head_dim")]

    def test_as_many_key_heads_as_heads_is_implicit(self, compare: Any) -> None:
        assert kinds(compare(LLAMA, {**LLAMA, "num_key_value_heads": 32})) == [("implicit", "num_key_value_heads")]
        change = only(compare(LLAMA, {**LLAMA, "num_key_value_heads": 8}))
        assert (change.kind, change.before) == ("size-changed", "32 (the class's default)")

    def test_layer_types_that_are_all_full_attention_are_implicit(self, compare: Any) -> None:
        compared = compare(LLAMA, {**LLAMA, "layer_types": ["full_attention"] * 32})
        assert kinds(compared) == [("implicit", "layer_types")]

    def test_a_window_that_is_switched_off_in_both_has_no_effect(self, compare: Any) -> None:
        base = {"model_type": "qwen2", "use_sliding_window": False}
        compared = compare({**base, "sliding_window": 131072}, {**base, "sliding_window": 32768})
        assert kinds(compared) == [("without-effect", "sliding_window")]
        assert compared.equal == ("config.json",)

    def test_an_unknown_class_has_no_known_default(self, compare: Any) -> None:
        assert kinds(compare({"model_type": "own"}, {"model_type": "own", "attention_bias": False})) == [
            ("key-added", "attention_bias")
        ]

    def test_null_of_an_unknown_class_is_only_an_added_key(self, compare: Any) -> None:
        assert kinds(compare({}, {"sliding_window": None})) == [("key-added", "sliding_window")]


class TestQuantisation:
    FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}

    def test_added_as_a_whole_is_one_change(self, compare: Any) -> None:
        change = only(compare({}, {"quantization_config": self.FP8}))
        assert change.kind == "quantization-added"
        assert change.after == "fp8, e4m3, weight_block_size [128, 128]"

    def test_removed_as_a_whole_is_one_change(self, compare: Any) -> None:
        part = {"hidden_size": 8}
        change = only(compare({"text_config": {"quantization_config": self.FP8, **part}}, {"text_config": part}))
        assert change.kind == "quantization-removed"

    def test_a_changed_key_names_it(self, compare: Any) -> None:
        compared = compare(
            {"quantization_config": self.FP8}, {"quantization_config": {**self.FP8, "scale_fmt": "ue8m0"}}
        )
        assert kinds(compared) == [("quantization-changed", "quantization_config.scale_fmt")]

    def test_the_older_name_compression_config_is_the_same_setting(self, compare: Any) -> None:
        compared = compare({"compression_config": self.FP8}, {"quantization_config": self.FP8})
        assert {kind for kind, _ in kinds(compared)} == {"key-renamed"}


class TestFiles:
    def test_a_file_that_came_is_one_change(self, snapshot: Any) -> None:
        compared = outcome(config, snapshot({}), snapshot({"adapter_config.json": {"r": 8}}))
        assert kinds(compared) == [("config-added", "adapter_config.json")]

    def test_nested_configurations_are_compared_too(self, snapshot: Any) -> None:
        old = snapshot({"text_encoder/config.json": {"dtype": "float16"}})
        new = snapshot({"text_encoder/config.json": {"dtype": "float32"}})
        assert outcome(config, old, new).changes[0].path == "text_encoder/config.json"

    def test_without_any_configuration_nothing_is_said(self, snapshot: Any) -> None:
        assert outcome(config, snapshot({}), snapshot({})) == Compared()


class TestHostile:
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
    def test_what_cannot_be_read_is_unread_and_never_equal(self, compare: Any, content: bytes, reason: str) -> None:
        compared = compare(LLAMA, content)
        assert compared.changes == () and compared.equal == ()
        assert reason in compared.unread[0].reason

    def test_a_file_that_cannot_be_fetched_is_unread(self, snapshot: Any) -> None:
        new = snapshot({"config.json": "{}"}, broken={"config.json": "the Hub did not answer in time"})
        compared = outcome(config, snapshot({"config.json": LLAMA}), new)
        assert compared.unread == (("config.json", "the Hub did not answer in time"),)
        assert compared.equal == ()

    def test_a_repeated_key_counts_as_its_last_and_is_named(self, compare: Any) -> None:
        compared = compare({"vocab_size": 1}, b'{"vocab_size": 1, "vocab_size": 2}')
        assert kinds(compared) == [("vocab-changed", "vocab_size"), ("repeated-key", "vocab_size")]

    def test_escape_codes_and_long_values_are_shown_harmless(self, compare: Any) -> None:
        change = only(compare({"x": "a"}, {"x": "\x1b[31m" + "b" * 10_000}))
        assert change.after is not None
        assert "\x1b" not in change.after and len(change.after) <= 100

    def test_odd_shapes_of_known_keys_are_survived(self, compare: Any) -> None:
        odd = {"rope_scaling": [1], "rope_parameters": "x", "quantization_config": 3, "layer_types": {}, "auto_map": []}
        assert compare({**LLAMA}, {**LLAMA, **odd}).changes
        assert compare({"rope_parameters": {"full_attention": None}}, {"rope_parameters": {}}) is not None

    @given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=4), st.lists, max_leaves=5))
    def test_any_value_equals_itself(self, value: Any) -> None:
        from envdoctor.revision.settings.parts.defaults import same

        assert same(value, value)

    @given(
        st.dictionaries(
            st.sampled_from(
                ["rope_scaling", "rope_theta", "rope_parameters", "type", "dtype", "text_config", "full_attention"]
            ),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(
                        st.sampled_from(["rope_theta", "type", "rope_type", "full_attention", "x"]), inner
                    )
                ),
                max_leaves=6,
            ),
        )
    )
    def test_any_table_can_be_flattened(self, table: dict[str, Any]) -> None:
        flatten(table, {"torch_dtype": "dtype"})

    @given(st.binary(max_size=200))
    def test_any_bytes_can_be_parsed_or_refused(self, content: bytes) -> None:
        parse_json(content, "config.json")
