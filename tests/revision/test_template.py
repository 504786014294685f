"""Chat templates are compared by what they render, wherever they lie, and cannot hurt the one who looks."""

from typing import Any

import pytest
from comparing import holds, only, two_sided
from header_true import Repository
from observing import shipped
from tables import rows

from envdoctor.revision import Compared
from envdoctor.revision.template.chat_template import render

TOKENIZER, JINJA = "tokenizer_config.json", "chat_template.jinja"
EQUAL = Compared(equal=("chat templates",))
# Our own texts, of the shape of the change that chatglm3-6b saw: a blank after the role's tag, then none.
PLAIN = (
    "[GO]{% for message in messages %}<|{{ message['role'] }}|>~\n {{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WITH_BLANK, WITHOUT_BLANK = PLAIN.replace("~", " "), PLAIN.replace("~", "")
USER_FIRST = "{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('user first') }}{% endif %}"


#: Two texts or lists of tokenizer_config.json, two tables of files, or two snapshots.
compare, changed = two_sided(
    "chat_template", lambda side: {TOKENIZER: {"chat_template": side}} if isinstance(side, (str, list)) else side
)


def test_a_blank_that_went_is_shown() -> None:
    change = only(compare(WITH_BLANK, WITHOUT_BLANK))
    assert change.kind == "rendering-changed"
    assert (change.before, change.after) == ('"[GO]<|user|> \\n U"', '"[GO]<|user|>\\n U"')
    assert change.count > 8
    assert change.detail is not None and "one user turn" in change.detail


@rows("old new expected")
def test_what_changed_is_told_by_what_is_rendered(old: str, new: str, expected: str) -> None:
    assert only(compare(old, new)).kind.startswith(expected)


def test_one_part_of_the_rendering_is_told_apart() -> None:
    change = only(compare(WITH_BLANK, WITH_BLANK.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif")))
    assert change.kind == "generation-prompt-changed"
    assert change.after is not None and change.after.endswith('<|assistant|><think>\\n"')
    rare = only(compare(WITH_BLANK, USER_FIRST + WITH_BLANK))
    assert (rare.kind, rare.after) == ("rare-rendering-changed", "refuses: user first")


def test_a_difference_deep_in_a_long_text_is_shown_with_its_surroundings() -> None:
    long = "x" * 5_000
    change = only(compare(f"{long} one {long}", f"{long} two {long}"))
    assert change.before is not None and change.after is not None
    assert "one" in change.before and "two" in change.after
    assert len(change.before) < 200 and change.before.startswith("...") and change.before.endswith("...")


def test_what_lies_beside_an_equal_template_does_not_matter() -> None:
    old, new = (Repository(texts={JINJA: PLAIN, TOKENIZER: {"a": number}}) for number in (1, 2))
    assert compare(old, new) == EQUAL
    assert old.read_paths == new.read_paths == []
    first, second = ({TOKENIZER: {"chat_template": PLAIN, "a": number}} for number in (1, 2))
    assert compare(first, second) == EQUAL
    assert compare(PLAIN, [{"name": "default", "template": PLAIN}]) == EQUAL


def test_the_same_text_in_its_own_file_is_a_move() -> None:
    compared = compare(PLAIN, {TOKENIZER: {}, JINJA: PLAIN})
    holds(compared, f"template-moved default: {TOKENIZER} -> {JINJA}")
    assert compared.equal == EQUAL.equal


def test_templates_are_found_in_every_place() -> None:
    both = {TOKENIZER: {"chat_template": WITH_BLANK}, JINJA: WITHOUT_BLANK}
    changed(WITH_BLANK, both, "rendering-changed", "template-sources-differ")
    default, tools = {"name": "default", "template": PLAIN}, {"name": "tool_use", "template": "T"}
    changed([default, tools], [default, {**tools, "template": "T2"}], "rendering-changed tool_use")
    old, new = ({JINJA: PLAIN, "additional_chat_templates/rag.jinja": text} for text in ("R", "R2"))
    changed(old, new, "rendering-changed rag")
    old, new = ({"chat_template.json": {"chat_template": text}} for text in ("A", "B"))
    changed(old, new, "rendering-changed processor")
    changed({TOKENIZER: {}}, PLAIN, "template-added")
    changed(PLAIN, {TOKENIZER: {}}, "template-removed")


def test_special_tokens_are_those_of_the_repository() -> None:
    tokens = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    old, new = ({TOKENIZER: {**tokens, "chat_template": f"{{{{ bos_token }}}}{letter}"}} for letter in "AB")
    assert only(compare(old, new)).before == '"<s>A"'


@rows("text said")
def test_what_cannot_be_rendered_is_named(text: str, said: str) -> None:
    change = only(compare(PLAIN, text))
    assert change.kind == "rendering-fails"
    assert change.after is not None and said in change.after


def test_a_loop_ends_at_the_limit() -> None:
    suite = shipped().rows("chat-conversations", "conversation")
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    problems = {outcome.problem for outcome in render(loop, {}, suite, seconds=1)}
    assert problems == {"it took more than 1 s"}
    compiling = render("{{ " + "(" * 5_000 + ")" * 5_000 + " }}", {}, suite, seconds=5)
    assert isinstance(compiling, str) or all(outcome.problem for outcome in compiling)


def test_escape_codes_are_shown_not_sent() -> None:
    assert only(compare("a", "a\x1b[31mred\u202e")).after == '"a\\x1b[31mred\\u202e"'


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("{% for %}", "{% for m %}", "neither"),
        ("{% for %}", PLAIN, "old revision"),
        *(({TOKENIZER: {"chat_template": value}}, PLAIN, "") for value in ([1], 5, {"default": 3})),
        ({TOKENIZER: {"chat_template": [{"name": 1, "template": "x"}]}}, PLAIN, ""),
        ({JINJA: PLAIN}, {JINJA: "x" * ((1 << 20) + 1)}, "bytes"),
        ({JINJA: PLAIN}, Repository(texts={JINJA: "x"}, broken={JINJA: "gone"}), "gone"),
    ],
)
def test_what_cannot_be_compared_is_unread_and_never_equal(old: Any, new: Any, why: str) -> None:
    compared = compare(old, new)
    assert compared.changes == () and compared.equal == ()
    assert why in compared.unread[0].reason


def test_beyond_twenty_templates_the_rest_is_said_to_be_unread() -> None:
    named = [{"name": str(number), "template": "x"} for number in range(21)]
    removed = compare(named, [])
    assert (len(removed.changes), [part.path for part in removed.unread]) == (20, [TOKENIZER])
    folders = [{f"additional_chat_templates/{number:02}.jinja": text for number in range(21)} for text in "ab"]
    assert [part.path for part in compare(*folders).unread] == ["additional_chat_templates/20.jinja"]
