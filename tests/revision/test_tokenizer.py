"""Tokenizer files: tokens and their ids, roles, settings, vocabulary, merges; nothing unread is called equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import outcome
from rooms import comparer

from envdoctor.revision import Change, Compared

tokenizer_files = comparer("tokenizer_files")

CONFIG = "tokenizer_config.json"
FILE = "tokenizer.json"


@pytest.fixture
def compare(snapshot: Callable[..., Any]) -> Callable[..., Compared]:
    return lambda old, new: outcome(tokenizer_files, snapshot(old), snapshot(new))


def kinds(compared: Compared) -> list[tuple[str, str]]:
    return [(change.kind, change.symbol) for change in compared.changes]


def only(compared: Compared) -> Change:
    assert compared.unread == ()
    assert len(compared.changes) == 1, compared.changes
    return compared.changes[0]


def token(content: str, **flags: bool) -> dict[str, Any]:
    return {"content": content, "special": True, "lstrip": False, **flags}


def decoder(**tokens: dict[str, Any]) -> dict[str, Any]:
    return {CONFIG: {"added_tokens_decoder": {number[1:]: entry for number, entry in tokens.items()}}}


class TestTokens:
    def test_a_token_with_another_id_moved(self, compare: Any) -> None:
        change = only(compare(decoder(_5=token("<|user|>")), decoder(_7=token("<|user|>"))))
        assert change == Change("tokenizer", "special-token-moved", CONFIG, "<|user|>", "id 5", "id 7")

    def test_an_id_that_is_another_token_is_a_renamed_token(self, compare: Any) -> None:
        change = only(compare(decoder(_5=token("<|reserved_2|>")), decoder(_5=token("<|pad|>"))))
        assert (change.kind, change.before, change.after) == ("special-token-renamed", "<|reserved_2|>", "<|pad|>")

    def test_flags(self, compare: Any) -> None:
        change = only(compare(decoder(_5=token("<x>", special=False)), decoder(_5=token("<x>", lstrip=True))))
        assert (change.kind, change.before, change.after) == (
            "special-flag-changed",
            "special=false, lstrip=false",
            "special=true, lstrip=true",
        )

    def test_added_and_removed(self, compare: Any) -> None:
        compared = compare(decoder(_5=token("<a>")), decoder(_6=token("<b>")))
        assert kinds(compared) == [("special-token-added", "<b>"), ("special-token-removed", "<a>")]

    def test_a_token_that_changed_its_file_did_not_change(self, compare: Any) -> None:
        compared = compare({CONFIG: {}, "added_tokens.json": {"<x>": 5}}, decoder(_5={"content": "<x>"}))
        assert kinds(compared) == [("tokenizer-file-removed", "added_tokens.json")]

    def test_a_token_that_an_unread_file_may_hold_is_only_listed(self, compare: Any) -> None:
        same = {"added_tokens.json": {"<x>": 5}}
        change = only(compare({CONFIG: {}, **same}, {**decoder(_5=token("<x>")), **same}))
        assert change.kind == "special-token-listed"
        assert change.detail is not None and "added_tokens.json" in change.detail

    def test_a_list_that_only_one_revision_has_says_nothing_of_the_vocabulary(self, compare: Any) -> None:
        change = only(compare({CONFIG: {}}, decoder(_0=token("<unk>"))))
        assert change.kind == "special-token-listed"
        assert change.detail is not None and "vocabulary" in change.detail

    def test_added_tokens_json_holds_only_what_lies_beyond_the_vocabulary(self, compare: Any) -> None:
        compared = compare({CONFIG: {}}, {CONFIG: {"a": 1}, "added_tokens.json": {"<pad>": 32000}})
        assert ("special-token-added", "<pad>") in kinds(compared)

    def test_tokens_that_differ_in_a_number_are_one_change(self, compare: Any) -> None:
        many = {f"_{number}": token(f"<|reserved_{number}|>") for number in range(100, 300)}
        change = only(compare(decoder(_1=token("<s>")), decoder(_1=token("<s>"), **many)))
        assert (change.kind, change.symbol, change.count) == ("special-token-added", "<|reserved_{i}|>", 200)
        assert change.after == "id 100, special … id 299, special"


class TestRoles:
    def test_another_eos_token(self, compare: Any) -> None:
        change = only(
            compare({CONFIG: {"eos_token": "<|endoftext|>"}}, {CONFIG: {"eos_token": {"content": "<|im_end|>"}}})
        )
        assert change == Change("tokenizer", "special-role-changed", CONFIG, "eos_token", "<|endoftext|>", "<|im_end|>")

    def test_the_same_token_in_either_form_is_no_change(self, compare: Any) -> None:
        compared = compare(
            {CONFIG: {"eos_token": "</s>"}}, {CONFIG: {"eos_token": {"content": "</s>", "lstrip": False}}}
        )
        assert compared == Compared(equal=("tokenizer",))

    def test_a_role_that_the_special_tokens_map_already_gave_is_no_change(self, compare: Any) -> None:
        role = {"pad_token": "<pad>"}
        compared = compare({CONFIG: {}, "special_tokens_map.json": role}, {CONFIG: role, "special_tokens_map.json": {}})
        assert compared == Compared(equal=("tokenizer",))

    def test_a_role_that_an_unread_map_may_give_is_only_listed(self, compare: Any) -> None:
        same = {"special_tokens_map.json": {"pad_token": "<pad>"}}
        change = only(compare({CONFIG: {}, **same}, {CONFIG: {"pad_token": "<pad>"}, **same}))
        assert change.kind == "special-role-listed"

    def test_extra_tokens_under_both_names(self, compare: Any) -> None:
        compared = compare(
            {CONFIG: {"additional_special_tokens": ["<a>", "<b>"]}}, {CONFIG: {"extra_special_tokens": ["<a>", "<c>"]}}
        )
        assert kinds(compared) == [
            ("extra-tokens-list", "extra_special_tokens"),
            ("extra-tokens-changed", "additional_special_tokens"),
        ]
        assert compared.changes[1].detail == "added: <c>; removed: <b>"


class TestSettings:
    @pytest.mark.parametrize(
        ("key", "before", "after", "kind"),
        [
            ("padding_side", "left", "right", "padding-side-changed"),
            ("tokenizer_class", "LlamaTokenizer", "TokenizersBackend", "class-changed"),
            ("tokenizer_class", "LlamaTokenizer", "LlamaTokenizerFast", "class-suffix-changed"),
            ("add_bos_token", True, False, "add-bos-changed"),
            ("model_max_length", 2048, 4096, "max-length-changed"),
            ("model_max_length", 10**30, 4096, "max-length-changed"),
            ("legacy", True, False, "option-changed"),
            ("name_or_path", "a", "b", "noise"),
            ("own_key", 1, 2, "key-changed"),
        ],
    )
    def test_a_key_has_the_kind_of_its_group(self, compare: Any, key: str, before: Any, after: Any, kind: str) -> None:
        assert kinds(compare({CONFIG: {key: before}}, {CONFIG: {key: after}})) == [(kind, key)]

    def test_no_limit_has_two_spellings(self, compare: Any) -> None:
        assert compare({CONFIG: {"model_max_length": 10**30}}, {CONFIG: {}}).equal == ("tokenizer",)

    def test_the_chat_template_is_another_area(self, compare: Any) -> None:
        assert compare({CONFIG: {"chat_template": "a"}}, {CONFIG: {"chat_template": "b"}}).equal == ("tokenizer",)


def bpe(**changes: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], **changes.pop("model", {})}
    return {FILE: {"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel"}, "model": model, **changes}}


class TestTokenizerFile:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"pre_tokenizer": {"type": "Metaspace"}}, ("pre-tokenizer-changed", "pre_tokenizer")),
            ({"normalizer": {"type": "NFC"}}, ("pre-tokenizer-changed", "normalizer")),
            ({"post_processor": {"type": "TemplateProcessing"}}, ("post-processor-changed", "post_processor")),
            ({"truncation": {"max_length": 512}}, ("truncation-changed", "truncation")),
            ({"model": {"merges": ["b a"]}}, ("merges-changed", "model.merges")),
            ({"model": {"merges": [["a", "b"]]}}, ("merges-format-changed", "model.merges")),
            ({"model": {"ignore_merges": True}}, ("model-option-changed", "model.ignore_merges")),
            ({"model": {"vocab": {"a": 1, "b": 0, "ab": 2}}}, ("vocabulary-changed", "model.vocab")),
            ({"model": {"vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}}}, ("vocabulary-grown", "model.vocab")),
        ],
    )
    def test_each_part_has_its_kind(self, compare: Any, changes: Any, expected: tuple[str, str]) -> None:
        assert kinds(compare(bpe(), bpe(**changes))) == [expected]

    def test_options_that_mean_nothing_are_no_change(self, compare: Any) -> None:
        assert compare(bpe(), bpe(model={"dropout": None, "byte_fallback": False})).equal == ("tokenizer",)

    def test_a_vocabulary_says_what_came_and_went(self, compare: Any) -> None:
        change = only(compare(bpe(), bpe(model={"vocab": {"a": 0, "c": 1, "ab": 3}})))
        assert (change.before, change.after, change.count) == ("3 entries", "3 entries", 3)
        assert change.detail == "1 added (c); 1 removed (b); 1 with other ids (ab)"

    def test_unigram_scores_count(self, compare: Any) -> None:
        one = {"model": {"type": "Unigram", "vocab": [["a", -1.0]], "merges": []}}
        two = {"model": {"type": "Unigram", "vocab": [["a", -2.0]], "merges": []}}
        assert only(compare(bpe(**one), bpe(**two))).kind == "vocabulary-changed"

    def test_added_tokens_are_taken_from_it(self, compare: Any) -> None:
        old, new = bpe(added_tokens=[{"id": 3, **token("<x>")}]), bpe(added_tokens=[{"id": 4, **token("<x>")}])
        assert kinds(compare(old, new)) == [("special-token-moved", "<x>")]

    @pytest.mark.parametrize(
        "content",
        [
            [],
            "text",
            {},
            {"model": []},
            {"model": {"vocab": 3}},
            {"model": {"vocab": [1]}},
            {"model": {"vocab": {}, "merges": {}}},
            {"model": {"vocab": {}, "merges": [1]}},
            {"model": {"vocab": {}, "merges": ["alone"]}},
            {"model": {"vocab": {}}, "added_tokens": 3},
            b'{"model":' * 5_000,
        ],
    )
    def test_another_shape_is_unread(self, compare: Any, content: Any) -> None:
        compared = compare(bpe(), {FILE: content})
        assert compared.unread and compared.equal == ()

    def test_odd_entries_of_known_tables_are_survived(self, compare: Any) -> None:
        odd = {
            "added_tokens_decoder": {"x": 1, "1": {"content": 2}, "9" * 400: token("<big>"), "2": token("\ud800")},
            "eos_token": 7,
            "additional_special_tokens": [{"content": 1}, 3, "<a>"],
            "extra_special_tokens": {"image_token": "<i>"},
            "model_max_length": "long",
        }
        assert compare({CONFIG: {}}, {CONFIG: odd}).changes


class TestVocabularyFiles:
    def test_a_sentencepiece_model_is_told_apart_by_its_object_id(self, snapshot: Any) -> None:
        old, new = snapshot({"tokenizer.model": "abc"}), snapshot({"tokenizer.model": "abd"})
        change = only(outcome(tokenizer_files, old, new))
        assert (change.kind, change.before, change.after) == (
            "vocabulary-changed",
            "3 bytes",
            "3 bytes with other content",
        )
        assert old.reads == new.reads == []

    def test_without_an_object_id_it_is_read(self, snapshot: Any) -> None:
        old = snapshot({"tokenizer.model": "abc"}, unhashed=["tokenizer.model"])
        assert outcome(tokenizer_files, old, snapshot({"tokenizer.model": "abc"})).equal == ("tokenizer",)

    def test_line_endings_of_merges_are_no_change(self, compare: Any) -> None:
        old = {"merges.txt": "#version: 0.2\na b\nc d\n"}
        assert compare(old, {"merges.txt": "a b\r\nc d"}).equal == ("tokenizer",)
        change = only(compare(old, {"merges.txt": "a b\nc d\ne f\n"}))
        assert (change.kind, change.before, change.after) == ("merges-changed", "2 merges", "3 merges")

    def test_vocab_json_and_txt(self, compare: Any) -> None:
        assert only(compare({"vocab.json": {"a": 0}}, {"vocab.json": {"a": 1}})).kind == "vocabulary-changed"
        assert only(compare({"vocab.txt": "a\nb\n"}, {"vocab.txt": "a\nb\nc\n"})).kind == "vocabulary-grown"
        assert compare({"vocab.json": {"a": 0}}, {"vocab.json": "{"}).unread

    def test_a_file_that_came(self, compare: Any) -> None:
        assert only(compare({}, {"tokenizer.model": "abc"})).kind == "tokenizer-file-added"


def test_equal_files_are_not_read(snapshot: Any) -> None:
    old, new = snapshot({**bpe(), CONFIG: {}}), snapshot({**bpe(), CONFIG: {}})
    assert outcome(tokenizer_files, old, new) == Compared(equal=("tokenizer",))
    assert old.reads == new.reads == []


def test_an_unreadable_file_leaves_tokens_and_roles_undecided(snapshot: Any) -> None:
    new = snapshot({CONFIG: "{}", "added_tokens.json": {"<x>": 1}}, broken={CONFIG: "cut off"})
    old = snapshot({CONFIG: {"eos_token": "</s>"}, "added_tokens.json": {"<x>": 2}})
    compared = outcome(tokenizer_files, old, new)
    assert compared.changes == () and compared.equal == ()
    assert compared.unread == ((CONFIG, "cut off"),)
