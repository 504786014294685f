"""Tokenizer files: tokens and their ids, roles, settings, vocabulary, merges; nothing unread is called equal."""

from typing import Any

import pytest
from comparing import holds, only, two_sided
from header_true import Repository
from tables import rows

from envdoctor.revision import Change, Compared

compare, changed = two_sided("tokenizer_files")

CONFIG, FILE, ADDED, MAP = "tokenizer_config.json", "tokenizer.json", "added_tokens.json", "special_tokens_map.json"
EQUAL = Compared(equal=("tokenizer",))


def token(content: str, **flags: bool) -> dict[str, Any]:
    return {"content": content, "special": True, "lstrip": False, **flags}


def decoder(**tokens: dict[str, Any]) -> dict[str, Any]:
    return {CONFIG: {"added_tokens_decoder": {number[1:]: entry for number, entry in tokens.items()}}}


def test_tokens_are_compared_by_their_ids() -> None:
    change = only(compare(decoder(_5=token("<|user|>")), decoder(_7=token("<|user|>"))))
    assert change == Change("tokenizer", "special-token-moved", CONFIG, "<|user|>", "id 5", "id 7")
    renamed = only(compare(decoder(_5=token("<|reserved_2|>")), decoder(_5=token("<|pad|>"))))
    assert (renamed.kind, renamed.before, renamed.after) == ("special-token-renamed", "<|reserved_2|>", "<|pad|>")
    flags = "special-flag-changed <x>: special=false, lstrip=false -> special=true, lstrip=true"
    changed(decoder(_5=token("<x>", special=False)), decoder(_5=token("<x>", lstrip=True)), flags)
    gone, came = decoder(_5=token("<a>")), decoder(_6=token("<b>"))
    changed(gone, came, "special-token-added <b>", "special-token-removed <a>")


def test_a_token_that_changed_its_file_did_not_change() -> None:
    changed({CONFIG: {}, ADDED: {"<x>": 5}}, decoder(_5={"content": "<x>"}), f"tokenizer-file-removed {ADDED}")


@pytest.mark.parametrize(("same", "number", "why"), [({ADDED: {"<x>": 5}}, "_5", ADDED), ({}, "_0", "vocabulary")])
def test_a_token_that_something_unread_may_hold_is_only_listed(same: Any, number: str, why: str) -> None:
    change = only(compare({CONFIG: {}, **same}, {**decoder(**{number: token("<x>")}), **same}))
    assert change.kind == "special-token-listed"
    assert change.detail is not None and why in change.detail


def test_added_tokens_json_holds_only_what_lies_beyond_the_vocabulary() -> None:
    compared = compare({CONFIG: {}}, {CONFIG: {"a": 1}, ADDED: {"<pad>": 32000}})
    assert ("special-token-added", "<pad>") in {(change.kind, change.symbol) for change in compared.changes}


def test_tokens_that_differ_in_a_number_are_one_change() -> None:
    many = {f"_{number}": token(f"<|reserved_{number}|>") for number in range(100, 300)}
    change = only(compare(decoder(_1=token("<s>")), decoder(_1=token("<s>"), **many)))
    assert (change.kind, change.symbol, change.count) == ("special-token-added", "<|reserved_{i}|>", 200)
    assert change.after == "id 100, special … id 299, special"


def test_roles_are_compared_by_their_tokens() -> None:
    old, new = {CONFIG: {"eos_token": "<|endoftext|>"}}, {CONFIG: {"eos_token": {"content": "<|im_end|>"}}}
    change = Change("tokenizer", "special-role-changed", CONFIG, "eos_token", "<|endoftext|>", "<|im_end|>")
    assert only(compare(old, new)) == change
    as_table = {CONFIG: {"eos_token": {"content": "</s>", "lstrip": False}}}
    assert compare({CONFIG: {"eos_token": "</s>"}}, as_table) == EQUAL
    role = {"pad_token": "<pad>"}
    assert compare({CONFIG: {}, MAP: role}, {CONFIG: role, MAP: {}}) == EQUAL
    changed({CONFIG: {}, MAP: role}, {CONFIG: role, MAP: role}, "special-role-listed")  # the map is not read


def test_extra_tokens_under_both_names() -> None:
    old, new = {"additional_special_tokens": ["<a>", "<b>"]}, {"extra_special_tokens": ["<a>", "<c>"]}
    compared = compare({CONFIG: old}, {CONFIG: new})
    holds(compared, "extra-tokens-list extra_special_tokens", "extra-tokens-changed additional_special_tokens")
    assert compared.changes[1].after == "2 tokens (added: <c>; removed: <b>)"


def test_texts_with_line_ends_and_zeros_are_told_apart() -> None:
    one, two = ({CONFIG: {"additional_special_tokens": tokens}} for tokens in (["A\nB"], ["A", "B"]))
    assert only(compare(one, two)).after == r"2 tokens (added: A, B; removed: A\nB)"
    old, new = ({FILE: {"model": {"type": "BPE", "merges": [pair]}}} for pair in (["a\0b", "c"], ["a", "b\0c"]))
    changed(old, new, "merges-changed model.merges")


@rows("before after expected detail")
def test_extra_tokens_have_names_flags_and_an_order(before: Any, after: Any, expected: str, detail: str | None) -> None:
    compared = compare({CONFIG: {"extra_special_tokens": before}}, {CONFIG: {"extra_special_tokens": after}})
    holds(compared, expected.format("additional_special_tokens"))
    assert detail is None or compared.changes[0].after == f"{len(after)} tokens ({detail})"


def test_flags_of_a_role_are_told_once() -> None:
    old, new = ({"eos_token": token("</s>", lstrip=flag)} for flag in (False, True))
    flags = "special-flag-changed </s>: lstrip=false -> lstrip=true"
    changed({CONFIG: old}, {CONFIG: new}, flags)
    listed = ({**side, "added_tokens_decoder": {"2": side["eos_token"]}} for side in (old, new))
    changed(*({CONFIG: side} for side in listed), flags)


def test_one_token_at_two_ids() -> None:
    twice = decoder(_502=token("<x>"), _503=token("<x>"))
    changed(decoder(_502=token("<x>")), twice, "special-token-moved <x>: id 502 -> id 502, 503")
    assert compare(twice, {**twice, MAP: {}}).changes[0].kind == "tokenizer-file-added"


def test_the_first_files_of_a_tokenizer_change_nothing_that_was_there() -> None:
    files = {CONFIG: {"eos_token": "</s>"}, FILE: {"model": {"vocab": {"a": 0}}}}
    changed({}, files, f"tokenizer-file-added {FILE}", f"tokenizer-file-added {CONFIG}")
    changed(files, {}, f"tokenizer-file-removed {FILE}", f"tokenizer-file-removed {CONFIG}")
    code = {"vocab.txt": "a"}  # the roles were in the tokenizer's code
    added = f"tokenizer-file-added {CONFIG}"
    changed(code, {**code, CONFIG: {"eos_token": "</s>"}}, added, "special-role-listed eos_token: None -> </s>")


@pytest.mark.parametrize(
    ("key", "before", "after", "kind"),
    [
        ("image_token", "<i>", "<j>", "special-role-changed"),
        ("use_image_token", True, False, "key-changed"),
        ("eos_token", 7, 8, "key-changed"),
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
def test_a_key_has_the_kind_of_its_group(key: str, before: Any, after: Any, kind: str) -> None:
    changed({CONFIG: {key: before}}, {CONFIG: {key: after}}, f"{kind} {key}")


def test_no_limit_has_two_spellings_and_the_chat_template_is_another_area() -> None:
    assert compare({CONFIG: {"model_max_length": 10**30}}, {CONFIG: {}}) == EQUAL
    assert compare({CONFIG: {"chat_template": "a"}}, {CONFIG: {"chat_template": "b"}}) == EQUAL


def bpe(**changes: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], **changes.pop("model", {})}
    return {FILE: {"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel"}, "model": model, **changes}}


@rows("changes expected")
def test_each_part_has_its_kind(changes: Any, expected: str) -> None:
    changed(bpe(), bpe(**changes), expected)


def test_tokenizer_json_is_compared_by_meaning() -> None:
    assert compare(bpe(), bpe(model={"dropout": None, "byte_fallback": False})) == EQUAL
    change = only(compare(bpe(), bpe(model={"vocab": {"a": 0, "c": 1, "ab": 3}})))
    assert (change.before, change.after, change.count) == ("3 entries", "3 entries", 3)
    assert change.detail == "1 added (c); 1 removed (b); 1 with other ids (ab)"

    def unigram(*vocabulary: tuple[str, float]) -> dict[str, Any]:
        return bpe(model={"type": "Unigram", "vocab": [[*entry] for entry in vocabulary], "merges": []})

    changed(unigram(("a", -1.0)), unigram(("a", -2.0)), "vocabulary-changed")
    changed(unigram(("a", 1)), unigram(("a", 1), ("a", 1)), "vocabulary-changed")  # at two ids
    assert compare(unigram(("a", 0)), unigram(("a", 0.0))) == EQUAL
    pairs = ({"model": {"type": "BPE", "merges": merges}} for merges in ([["a", "b"], ["c", "d"]], [["a", "b\nc\0d"]]))
    changed(*({FILE: side} for side in pairs), "merges-changed model.merges")
    changed(bpe(truncation={"max_length": 1}), bpe(truncation={"max_length": True}), "truncation-changed truncation")
    old, new = (bpe(added_tokens=[{"id": number, **token("<x>")}]) for number in (3, 4))
    changed(old, new, "special-token-moved <x>")


@pytest.mark.parametrize(
    "content",
    [
        *([], "text", {}, b'{"model":' * 5_000, {"model": {"vocab": {}}, "added_tokens": 3}),
        *({"model": model} for model in ([], {"vocab": 3}, {"vocab": [1]})),
        *({"model": {"vocab": {}, "merges": merges}} for merges in ({}, [1], ["alone"])),
    ],
)
def test_another_shape_is_unread(content: Any) -> None:
    compared = compare(bpe(), {FILE: content})
    assert compared.unread and compared.equal == ()


def test_odd_entries_of_known_tables_are_survived() -> None:
    odd = {
        "added_tokens_decoder": {"x": 1, "1": {"content": 2}, "9" * 400: token("<big>"), "2": token("\ud800")},
        "eos_token": 7,
        "additional_special_tokens": [{"content": 1}, 3, "<a>"],
        "extra_special_tokens": {"image_token": "<i>"},
        "model_max_length": "long",
    }
    assert compare({CONFIG: {}}, {CONFIG: odd}).changes


def test_a_sentencepiece_model_is_told_apart_by_its_object_id() -> None:
    old, new = Repository(texts={"tokenizer.model": "abc"}), Repository(texts={"tokenizer.model": "abd"})
    changed(old, new, "vocabulary-changed tokenizer.model: 3 bytes -> 3 bytes with other content")
    assert old.read_paths == new.read_paths == []
    old = Repository(texts={"tokenizer.model": "abc"}, unhashed=["tokenizer.model"])
    assert compare(old, {"tokenizer.model": "abc"}) == EQUAL
    changed({}, {"tokenizer.model": "abc"}, "tokenizer-file-added")


def test_files_of_merges_and_vocabularies() -> None:
    merges = {"merges.txt": "#version: 0.2\na b\nc d\n"}
    assert compare(merges, {"merges.txt": "a b\r\nc d"}) == EQUAL
    changed(merges, {"merges.txt": "a b\nc d\ne f\n"}, "merges-changed merges.txt: 2 merges -> 3 merges")
    changed({"vocab.json": {"a": 0}}, {"vocab.json": {"a": 1}}, "vocabulary-changed")
    changed({"vocab.txt": "a\nb\n"}, {"vocab.txt": "a\nb\nc\n"}, "vocabulary-grown")
    assert compare({"vocab.json": {"a": 0}}, {"vocab.json": "{"}).unread


def test_an_unreadable_file_leaves_tokens_and_roles_undecided() -> None:
    new = Repository(texts={CONFIG: "{}", ADDED: {"<x>": 1}}, broken={CONFIG: "cut off"})
    compared = compare({CONFIG: {"eos_token": "</s>"}, ADDED: {"<x>": 2}}, new)
    assert compared == Compared(unread=((CONFIG, "cut off"),))
