"""Rendering one chat template for a fixed suite of conversations, in a bounded child."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.text.message import Message, as_message, unpacked

#: For all conversations together. Real templates take a few milliseconds each; the rest is the start of Python.
SECONDS = 8.0
_CHILD = "envdoctor.revision.template.parts.render_suite:answer"


class Rendered(NamedTuple):
    """The outcome for one conversation.

    ``text`` is the rendering (its first 20,000 characters), ``digest`` stands for the whole; ``refused`` is what the
    template gave to raise_exception, ``problem`` a clause about any other trouble. Two of the three are None.
    """

    text: str | None = None
    digest: str | None = None
    refused: str | None = None
    problem: Message | None = None

    def same(self, other: "Rendered") -> bool:
        """Whether both are the same text, or both refuse, or both fail in the same way."""
        if self.text is not None or other.text is not None:
            return self.digest == other.digest
        return (self.refused is None) == (other.refused is None) and self.problem == other.problem


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


def _turns(*contents: str) -> list[dict[str, Any]]:
    """User and assistant in turn."""
    return [_said(("user", "assistant")[place % 2], content) for place, content in enumerate(contents)]


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
SUITE = (
    Conversation(Message("one user turn"), "chat", _turns("U")),
    Conversation(Message("one exchange"), "chat", _turns("U", "A")),
    Conversation(Message("system, user, assistant"), "chat", [_SYSTEM, *_turns("U", "A")]),
    Conversation(Message("three turns"), "chat", [_SYSTEM, *_turns("U", "A", "U2", "A2", "U3")]),
    Conversation(
        Message("unicode and blanks"),
        "chat",
        _turns(" 你好，世界 é 🙂\n\n  indented\ttext ", '{{ not code }} <b> & "quoted"\n'),
    ),
    Conversation(Message("one user turn, generation prompt"), "prompt", _turns("U"), add_generation_prompt=True),
    Conversation(
        Message("system and user, generation prompt"), "prompt", [_SYSTEM, *_turns("U")], add_generation_prompt=True
    ),
    Conversation(
        Message("three turns, generation prompt"), "prompt", _turns("U", "A", "U2"), add_generation_prompt=True
    ),
    Conversation(Message("tools offered"), "tools", [_SYSTEM, *_turns("U")], [_WEATHER], add_generation_prompt=True),
    Conversation(
        Message("tool call and result"),
        "tools",
        [
            _said("user", "U"),
            _said("assistant", "", tool_calls=[_CALL]),
            _said("tool", "22 degrees", name="get_weather", tool_call_id="call12345"),
            _said("assistant", "A"),
        ],
        [_WEATHER],
    ),
    Conversation(Message("empty content"), "rare", _turns("", "")),
    Conversation(Message("system only"), "rare", [_SYSTEM]),
    Conversation(Message("assistant first"), "rare", _turns("U", "A")[::-1]),
    Conversation(
        Message("content in parts"), "rare", [_said("user", [{"type": "text", "text": "U"}]), _said("assistant", "A")]
    ),
    Conversation("reasoning", "rare", [*_turns("U"), _said("assistant", "A", reasoning_content="R"), *_turns("U2")]),
    Conversation(Message("thinking tags"), "rare", _turns("U", "<think>\nR\n</think>\n\nA", "U2")),
)


def render(template: str, variables: Mapping[str, str], *, seconds: float = SECONDS) -> list[Rendered] | Message:
    """The outcomes of a template for each conversation of the suite, or why none could be had at all.
    ``variables`` are special tokens such as ``bos_token``.

    Nothing that the template does can hold the caller up for longer than ``seconds``. What was rendered before a limit
    was hit is kept; the conversation that hit it and those after it carry the problem.
    """
    from envdoctor.sandbox.asking import Limits, Problem, ask

    asked = {"template": template, "variables": dict(variables)}
    columns = ("messages", "tools", "add_generation_prompt")
    given = [{column: getattr(one, column) for column in columns} for one in SUITE]
    limits = Limits(seconds, mib=256, output=2 << 20)
    answers = list(ask(_CHILD, [({**asked, "given": one}, None) for one in given], limits, packages=True))
    first = answers[0]
    if isinstance(first, Problem) and first.kind == "failed":
        return Message("it could not be rendered here: {}", first.tail)
    if isinstance(first, dict) and "invalid" in first:
        return as_message(unpacked(first["invalid"]))
    return [
        Rendered(problem=answer.said())
        if isinstance(answer, Problem)
        else Rendered(**{name: unpacked(value) for name, value in answer.items()})
        for answer in answers
    ]
