"""The fixed suite of conversations that chat templates are compared with."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.text.message import Message


class Conversation(NamedTuple):
    """One input of a template.

    ``use`` says who meets it: ``chat`` (any fine-tune on conversations), ``prompt`` (generation, and loss masks that
    are built from the generation prompt), ``tools`` (only with tools), ``rare`` (shapes that most data sets lack).
    """

    name: str
    use: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = False


def _said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


_USER = _said("user", "U")
_ANSWER = _said("assistant", "A")
_SYSTEM = _said("system", "You are helpful.")
_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
        },
    },
}
_CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Beijing"}},
}

#: Ordered from what everybody meets to what few do: the first difference is the one that is shown.
SUITE: tuple[Conversation, ...] = (
    Conversation(Message("one user turn"), "chat", [_USER]),
    Conversation(Message("one exchange"), "chat", [_USER, _ANSWER]),
    Conversation(Message("system, user, assistant"), "chat", [_SYSTEM, _USER, _ANSWER]),
    Conversation(
        Message("three turns"),
        "chat",
        [_SYSTEM, _USER, _ANSWER, _said("user", "U2"), _said("assistant", "A2"), _said("user", "U3")],
    ),
    Conversation(
        Message("unicode and blanks"),
        "chat",
        [
            _said("user", " 你好，世界 é 🙂\n\n  indented\ttext "),
            _said("assistant", '{{ not code }} <b> & "quoted"\n'),
        ],
    ),
    Conversation(Message("one user turn, generation prompt"), "prompt", [_USER], add_generation_prompt=True),
    Conversation(Message("system and user, generation prompt"), "prompt", [_SYSTEM, _USER], add_generation_prompt=True),
    Conversation(
        Message("three turns, generation prompt"),
        "prompt",
        [_USER, _ANSWER, _said("user", "U2")],
        add_generation_prompt=True,
    ),
    Conversation(Message("tools offered"), "tools", [_SYSTEM, _USER], [_WEATHER], add_generation_prompt=True),
    Conversation(
        Message("tool call and result"),
        "tools",
        [
            _USER,
            _said("assistant", "", tool_calls=[_CALL]),
            _said("tool", "22 degrees", name="get_weather", tool_call_id="call12345"),
            _ANSWER,
        ],
        [_WEATHER],
    ),
    Conversation(Message("empty content"), "rare", [_said("user", ""), _said("assistant", "")]),
    Conversation(Message("system only"), "rare", [_SYSTEM]),
    Conversation(Message("assistant first"), "rare", [_ANSWER, _USER]),
    Conversation(Message("content in parts"), "rare", [_said("user", [{"type": "text", "text": "U"}]), _ANSWER]),
    Conversation("reasoning", "rare", [_USER, _said("assistant", "A", reasoning_content="R"), _said("user", "U2")]),
    Conversation(
        Message("thinking tags"), "rare", [_USER, _said("assistant", "<think>\nR\n</think>\n\nA"), _said("user", "U2")]
    ),
)
