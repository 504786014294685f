"""One row of training data as what goes into the model: conversations for a chat template, or plain text.

The columns are those of the formats that trainers share: messages (OpenAI), conversations (ShareGPT), instruction,
input, output and history (Alpaca), prompt and completion, chosen and rejected (preferences, two samples a row), text.
"""

import json
from typing import Any

from envdoctor.text.message import Message

Turns = list[dict[str, str]]
#: A conversation, or a text that no template goes around.
Sample = Turns | str

_TURNS = ("messages", "conversations", "conversation")
_ASKED = ("instruction", "prompt", "query", "question", "problem")
_ANSWERED = ("output", "response", "completion", "answer", "solution")
_TEXTS = ("text", "content")
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "ipython": "tool",
}


class RowProblem(Exception):
    """A row is nothing to train on; the message is what follows its place in a sentence."""


def samples_of(row: Any) -> tuple[str, list[Sample]]:
    """The format of a row (conversations, instructions, preferences, text, other) and its samples."""
    if isinstance(row, str):
        return "text", [row]
    if not isinstance(row, dict):
        raise RowProblem(Message("is no object of columns"))
    before = [_turn("system", row["system"])] if isinstance(row.get("system"), str) and row["system"] else []
    turns = next((_turns("user", row[name]) for name in _TURNS if isinstance(row.get(name), list)), None)
    asked = before + (turns if turns is not None else _asked(row))
    if row.get("chosen") is not None and row.get("rejected") is not None:
        answers = [_turns("assistant", row[name]) for name in ("chosen", "rejected")]
        # Without a prompt of their own both hold the whole conversation.
        return "preferences", [answer if _begins(answer) else asked + answer for answer in answers]
    if turns is not None:
        return "conversations", [asked]
    answer = next((row[name] for name in _ANSWERED if row.get(name) is not None), None)
    if _first(row, _ASKED) is not None and (answer is not None or _first(row, _TEXTS) is None):
        return "instructions", [asked + _turns("assistant", answer)]
    text = _first(row, _TEXTS) if len(row) == 1 or "text" in row else None
    if isinstance(text, str):
        return "text", [text]
    values = [value for value in row.values() if isinstance(value, str)]
    if not values:
        raise RowProblem(Message("has no text in any column"))
    return "other", ["\n".join(values)]


def plain_text(sample: Sample) -> str:
    """The words of a sample, without a template."""
    return sample if isinstance(sample, str) else "\n".join(turn["content"] for turn in sample)


def _first(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _asked(row: dict[str, Any]) -> Turns:
    """The question, with what was said before it and what it is about."""
    turns: Turns = []
    for pair in row["history"] if isinstance(row.get("history"), list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            turns += _turns("user", pair[0]) + _turns("assistant", pair[1])
    question = _first(row, _ASKED)
    if isinstance(question, list):
        return turns + _turns("user", question)
    parts = [text for text in (_text(question), _text(row.get("input"))) if text]
    return turns + ([_turn("user", "\n".join(parts))] if parts else [])


def _begins(turns: Turns) -> bool:
    return len(turns) > 1 and turns[0]["role"] in ("user", "system")


def _turns(role: str, value: Any) -> Turns:
    """What was said, by a text, one message, or a list of them."""
    match value:
        case None:
            return []
        case list():
            return [turn for item in value for turn in _turns(role, item)]
        case dict():
            said = value.get("role", value.get("from"))
            content = value.get("content", value.get("value"))
            calls = value.get("tool_calls")
            extra = json.dumps(calls, ensure_ascii=False) if calls else ""
            return [_turn(said if isinstance(said, str) else role, _text(content) + extra)]
    return [_turn(role, value)]


def _turn(role: str, content: Any) -> dict[str, str]:
    return {"role": _ROLES.get(role.lower(), role.lower()), "content": _text(content)}


def _text(value: Any) -> str:
    """A text, or the texts of a content that is given in parts."""
    match value:
        case str():
            return value
        case list():
            return "".join(_text(part.get("text") if isinstance(part, dict) else part) for part in value)
        case None | dict():
            return ""
    return str(value)
