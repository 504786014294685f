"""Rows of the formats that trainers share, as what goes into the model."""

from __future__ import annotations

from typing import Any

import pytest

from envdoctor.peak import DataProblem
from envdoctor.peak.read_data import plain_text, samples_of


def turns(*pairs: str) -> list[dict[str, str]]:
    """Messages by role and content: ``turns("user: hi")``."""
    return [dict(zip(("role", "content"), pair.split(": ", 1), strict=True)) for pair in pairs]


USER, ASSISTANT = ASKED = turns("user: hi", "assistant: ho")
SHARED = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]
PARTS = [{"type": "text", "text": "hi"}, {"type": "image"}]
ALPACA = {"instruction": "say", "input": "hi", "output": "ho", "history": [["a", "b"]]}
ANSWERS = {"chosen": {"from": "gpt", "value": "ho"}, "rejected": {"from": "gpt"}}


@pytest.mark.parametrize(
    ("row", "name", "samples"),
    [
        ({"messages": ASKED}, "conversations", [ASKED]),
        ({"system": "be kind", "conversations": SHARED}, "conversations", [[*turns("system: be kind"), *ASKED]]),
        ({"messages": [{"role": "user", "content": PARTS}]}, "conversations", [[USER]]),
        ({"messages": [{"role": "user", "content": None}]}, "conversations", [turns("user: ")]),
        ({"instruction": "hi", "input": "", "output": "ho"}, "instructions", [ASKED]),
        (ALPACA, "instructions", [turns("user: a", "assistant: b", "user: say\nhi", "assistant: ho")]),
        ({"prompt": "hi", "completion": "ho"}, "instructions", [ASKED]),
        ({"prompt": [USER], "completion": [ASSISTANT]}, "instructions", [ASKED]),
        ({"prompt": "hi"}, "instructions", [[USER]]),
        ({"prompt": "hi", "chosen": "ho", "rejected": "no"}, "preferences", [ASKED, [USER, *turns("assistant: no")]]),
        ({"conversations": [USER], **ANSWERS}, "preferences", [ASKED, [USER, *turns("assistant: ")]]),
        ({"prompt": "hi", "chosen": ASKED, "rejected": ASKED}, "preferences", [ASKED, ASKED]),
        ({"text": "a b c", "id": 7}, "text", ["a b c"]),
        ("a b c", "text", ["a b c"]),
        ({"content": "shirt", "summary": "it is red", "n": 3}, "other", ["shirt\nit is red"]),
    ],
)
def test_a_row_is_the_samples_of_its_format(row: Any, name: str, samples: list[Any]) -> None:
    assert samples_of(row) == (name, samples)


@pytest.mark.parametrize("row", [3, None, [], {}, {"a": 1}])
def test_what_is_nothing_to_train_on_is_named(row: Any) -> None:
    with pytest.raises(DataProblem):
        samples_of(row)


def test_the_words_of_a_conversation_without_a_template() -> None:
    assert plain_text(ASKED) == "hi\nho" and plain_text("a") == "a"  # type: ignore[arg-type]
