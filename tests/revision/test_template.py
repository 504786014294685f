"""Chat templates are compared by what they render, wherever they lie, and cannot hurt the one who looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import outcome
from rooms import comparer

from envdoctor.revision import Change, Compared
from envdoctor.revision.template.parts.conversations import SUITE
from envdoctor.revision.template.parts.rendering import render

chat_template = comparer("chat_template")

# Our own texts, of the shape of the change that chatglm3-6b saw: a blank after the role's tag, then none.
PLAIN = (
    "[GO]{% for message in messages %}<|{{ message['role'] }}|>~\n {{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WITH_BLANK, WITHOUT_BLANK = PLAIN.replace("~", " "), PLAIN.replace("~", "")


@pytest.fixture
def compare(snapshot: Callable[..., Any]) -> Callable[..., Compared]:
    def run(old: Any, new: Any) -> Compared:
        files = [
            {"tokenizer_config.json": {"chat_template": side}} if isinstance(side, (str, list)) else side
            for side in (old, new)
        ]
        return outcome(chat_template, snapshot(files[0]), snapshot(files[1]))

    return run


def only(compared: Compared) -> Change:
    assert compared.unread == ()
    assert len(compared.changes) == 1, compared.changes
    return compared.changes[0]


def test_the_suite_has_at_least_eight_conversations_of_every_use() -> None:
    assert len(SUITE) >= 8
    assert {conversation.use for conversation in SUITE} == {"chat", "prompt", "tools", "rare"}
    assert len({conversation.name for conversation in SUITE}) == len(SUITE)


class TestRenderingChanged:
    def test_a_blank_that_went_is_shown(self, compare: Any) -> None:
        change = only(compare(WITH_BLANK, WITHOUT_BLANK))
        assert change.kind == "rendering-changed"
        assert (change.before, change.after) == ('"[GO]<|user|> \\n U"', '"[GO]<|user|>\\n U"')
        assert change.count == sum(bool(conversation.messages) for conversation in SUITE)
        assert change.detail is not None and "one user turn" in change.detail

    def test_only_the_generation_prompt(self, compare: Any) -> None:
        change = only(
            compare(WITH_BLANK, WITH_BLANK.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif"))
        )
        assert change.kind == "generation-prompt-changed"
        assert change.after is not None and change.after.endswith('<|assistant|><think>\\n"')

    def test_only_tools(self, compare: Any) -> None:
        change = only(compare(WITH_BLANK, "{{ tools|tojson if tools }}" + WITH_BLANK))
        assert change.kind == "tools-rendering-changed"

    def test_only_unusual_conversations(self, compare: Any) -> None:
        guarded = (
            "{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('user first') }}{% endif %}" + WITH_BLANK
        )
        change = only(compare(WITH_BLANK, guarded))
        assert change.kind == "rare-rendering-changed"
        assert change.after == "refuses: user first"

    def test_a_default_system_prompt_is_a_changed_rendering(self, compare: Any) -> None:
        system = "{% if messages[0]['role'] != 'system' %}<|system|>\n Be kind.{% endif %}"
        assert only(compare(WITH_BLANK, system + WITH_BLANK)).kind == "rendering-changed"

    def test_a_difference_deep_in_a_long_text_is_shown_with_its_surroundings(self, compare: Any) -> None:
        long = "x" * 5_000
        change = only(compare(f"{long} one {long}", f"{long} two {long}"))
        assert change.before is not None and change.after is not None
        assert "one" in change.before and "two" in change.after
        assert len(change.before) < 200 and change.before.startswith("...") and change.before.endswith("...")

    def test_a_difference_behind_what_is_kept_is_still_a_difference(self, compare: Any) -> None:
        long = "{{ 'x' * 30000 }}"
        change = only(compare(f"{long}one", f"{long}two"))
        assert change.kind == "rendering-changed"

    def test_the_time_of_day_is_no_difference(self, compare: Any) -> None:
        compared = compare("{{ strftime_now('%d %b %Y') }}", "{{- strftime_now('%d %b %Y') -}}")
        assert only(compared).kind == "text-changed-rendering-equal"


class TestSameRendering:
    def test_another_text_with_the_same_renderings(self, compare: Any) -> None:
        change = only(compare(WITH_BLANK, WITH_BLANK.replace("message['role']", "message.role")))
        assert change.kind == "text-changed-rendering-equal"

    def test_equal_files_are_not_read(self, snapshot: Any) -> None:
        old, new = (snapshot({"tokenizer_config.json": {"chat_template": PLAIN}}) for _ in range(2))
        assert outcome(chat_template, old, new) == Compared(equal=("chat templates",))
        assert old.reads == new.reads == []

    def test_a_changed_tokenizer_config_does_not_matter_beside_an_equal_jinja_file(self, snapshot: Any) -> None:
        old = snapshot({"chat_template.jinja": PLAIN, "tokenizer_config.json": {"a": 1}})
        new = snapshot({"chat_template.jinja": PLAIN, "tokenizer_config.json": {"a": 2}})
        assert outcome(chat_template, old, new).equal == ("chat templates",)
        assert old.reads == new.reads == []

    def test_a_changed_tokenizer_config_with_the_same_template_is_equal(self, compare: Any) -> None:
        compared = compare(
            {"tokenizer_config.json": {"chat_template": PLAIN, "a": 1}},
            {"tokenizer_config.json": {"chat_template": PLAIN, "a": 2}},
        )
        assert compared == Compared(equal=("chat templates",))

    def test_one_text_and_a_list_with_that_text_are_equal(self, compare: Any) -> None:
        assert compare(PLAIN, [{"name": "default", "template": PLAIN}]) == Compared(equal=("chat templates",))

    def test_the_generation_mark_changes_no_rendering(self, compare: Any) -> None:
        text = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }};{% endfor %}"
        marked = text.replace("{{ m['content'] }}", "{% generation %}{{ m['content'] }}{% endgeneration %}")
        assert only(compare(text, marked)).kind == "text-changed-rendering-equal"


class TestPlaces:
    def test_the_same_text_in_its_own_file_is_a_move(self, compare: Any) -> None:
        compared = compare(PLAIN, {"tokenizer_config.json": {}, "chat_template.jinja": PLAIN})
        change = only(compared)
        assert (change.kind, change.before, change.after) == (
            "template-moved",
            "tokenizer_config.json",
            "chat_template.jinja",
        )
        assert compared.equal == ("chat templates",)

    def test_the_jinja_file_wins(self, compare: Any) -> None:
        new = {"tokenizer_config.json": {"chat_template": WITH_BLANK}, "chat_template.jinja": WITHOUT_BLANK}
        changes = compare(WITH_BLANK, new).changes
        assert [change.kind for change in changes] == ["rendering-changed", "template-sources-differ"]

    def test_named_templates_are_compared_one_by_one(self, compare: Any) -> None:
        default, tools = {"name": "default", "template": PLAIN}, {"name": "tool_use", "template": "T"}
        change = only(compare([default, tools], [default, {**tools, "template": "T2"}]))
        assert (change.kind, change.symbol) == ("rendering-changed", "tool_use")

    def test_named_templates_in_files(self, compare: Any) -> None:
        old = {"chat_template.jinja": PLAIN, "additional_chat_templates/rag.jinja": "R"}
        new = {"chat_template.jinja": PLAIN, "additional_chat_templates/rag.jinja": "R2"}
        assert only(compare(old, new)).symbol == "rag"

    def test_the_template_of_a_processor(self, compare: Any) -> None:
        change = only(
            compare({"chat_template.json": {"chat_template": "A"}}, {"chat_template.json": {"chat_template": "B"}})
        )
        assert (change.kind, change.symbol) == ("rendering-changed", "processor")

    def test_added_and_removed(self, compare: Any) -> None:
        bare: dict[str, Any] = {"tokenizer_config.json": {}}
        assert only(compare(bare, PLAIN)).kind == "template-added"
        assert only(compare(PLAIN, bare)).kind == "template-removed"

    def test_special_tokens_are_those_of_the_repository(self, compare: Any) -> None:
        tokens = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
        old = {"tokenizer_config.json": {**tokens, "chat_template": "{{ bos_token }}A"}}
        new = {"tokenizer_config.json": {**tokens, "chat_template": "{{ bos_token }}B"}}
        assert only(compare(old, new)).before == '"<s>A"'


class TestHostile:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{{ 'a' * 300000000 }}", "memory"),
            ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "forbids"),
            ("{{ cycler.__init__.__globals__.os.system('id') }}", "forbids"),
            ("{{ messages.append(1) }}", "forbids"),
            ("{{ range(1000000000) }}", "range"),
            ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "without end"),
            ("{% for m in %}", "not a valid template"),
            ("{{ messages.nothing.at.all }}", "UndefinedError"),
            ("{% include '/etc/passwd' %}", "TypeError"),
        ],
    )
    def test_what_cannot_be_rendered_is_named(self, compare: Any, text: str, said: str) -> None:
        change = only(compare(PLAIN, text))
        assert change.kind == "rendering-fails"
        assert change.after is not None and said in change.after

    def test_a_loop_ends_at_the_limit(self) -> None:
        loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
        problems = {outcome.problem for outcome in render(loop, {}, seconds=1).outcomes.values()}
        assert problems == {"it did not end within 1 s"}

    def test_a_loop_that_compiles_for_ever_is_bounded_too(self) -> None:
        rendering = render("{{ " + "(" * 5_000 + ")" * 5_000 + " }}", {}, seconds=5)
        assert rendering.failure is not None or all(outcome.problem for outcome in rendering.outcomes.values())

    def test_output_without_end_is_cut(self, compare: Any) -> None:
        change = only(compare(PLAIN, "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"))
        assert change.kind == "rendering-fails"

    def test_escape_codes_are_shown_not_sent(self, compare: Any) -> None:
        change = only(compare("a", "a\x1b[31mred\u202e"))
        assert change.after == '"a\\x1b[31mred\\u202e"'

    def test_two_broken_templates_are_not_called_equal(self, compare: Any) -> None:
        compared = compare("{% for %}", "{% for m %}")
        assert compared.changes == () and compared.equal == ()
        assert "neither" in compared.unread[0].reason

    def test_a_broken_old_template_leaves_the_area_undecided(self, compare: Any) -> None:
        compared = compare("{% for %}", PLAIN)
        assert "old revision" in compared.unread[0].reason

    @pytest.mark.parametrize("value", [[1], [{"name": 1, "template": "x"}], 5, {"default": 3}])
    def test_a_template_of_an_odd_type_is_unread(self, compare: Any, value: Any) -> None:
        compared = compare({"tokenizer_config.json": {"chat_template": value}}, PLAIN)
        assert compared.changes == () and compared.unread

    def test_an_unreadable_file_is_unread(self, snapshot: Any) -> None:
        new = snapshot({"chat_template.jinja": "x"}, broken={"chat_template.jinja": "gone"})
        compared = outcome(chat_template, snapshot({"chat_template.jinja": PLAIN}), new)
        assert compared.unread == (("chat_template.jinja", "gone"),) and compared.equal == ()

    def test_a_template_that_is_too_large_is_unread(self, snapshot: Any) -> None:
        new = snapshot({"chat_template.jinja": "x" * ((1 << 20) + 1)})
        assert outcome(chat_template, snapshot({"chat_template.jinja": PLAIN}), new).unread
