"""Rows of the formats that trainers share, as what goes into the model."""

from __future__ import annotations

from typing import Any

import pytest

from envdoctor.lengths import RowProblem
from envdoctor.lengths.shapes import plain_text, samples_of

USER, ASSISTANT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
ASKED = [USER, ASSISTANT]
SYSTEM = {"role": "system", "content": "be kind"}


@pytest.mark.parametrize(
    ("row", "name", "samples"),
    [
        ({"messages": ASKED}, "conversations", [ASKED]),
        (
            {"system": "be kind", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]},
            "conversations",
            [[SYSTEM, *ASKED]],
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image"}]}]},
            "conversations",
            [[USER]],
        ),
        ({"messages": [{"role": "user", "content": None}]}, "conversations", [[{"role": "user", "content": ""}]]),
        ({"instruction": "hi", "input": "", "output": "ho"}, "instructions", [ASKED]),
        (
            {"instruction": "say", "input": "hi", "output": "ho", "history": [["a", "b"]]},
            "instructions",
            [
                [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b"},
                    {"role": "user", "content": "say\nhi"},
                    ASSISTANT,
                ]
            ],
        ),
        ({"prompt": "hi", "completion": "ho"}, "instructions", [ASKED]),
        ({"prompt": [USER], "completion": [ASSISTANT]}, "instructions", [ASKED]),
        ({"prompt": "hi"}, "instructions", [[USER]]),
        (
            {"prompt": "hi", "chosen": "ho", "rejected": "no"},
            "preferences",
            [ASKED, [USER, {"role": "assistant", "content": "no"}]],
        ),
        (
            {"conversations": [USER], "chosen": {"from": "gpt", "value": "ho"}, "rejected": {"from": "gpt"}},
            "preferences",
            [ASKED, [USER, {"role": "assistant", "content": ""}]],
        ),
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
    with pytest.raises(RowProblem):
        samples_of(row)


def test_the_words_of_a_conversation_without_a_template() -> None:
    assert plain_text(ASKED) == "hi\nho" and plain_text("a") == "a"  # type: ignore[arg-type]
