"""Rendering one chat template for the whole suite, in a bounded child."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.revision.template.parts.conversations import SUITE
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


class Rendering(NamedTuple):
    """All outcomes, by the name of the conversation; ``failure`` says why none could be had at all."""

    outcomes: Mapping[str, Rendered]
    failure: Message | None = None


def render(template: str, variables: Mapping[str, str], *, seconds: float = SECONDS) -> Rendering:
    """The outcomes of a template. ``variables`` are special tokens such as ``bos_token``.

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
        return Rendering({}, Message("it could not be rendered here: {}", first.tail))
    if isinstance(first, dict) and "invalid" in first:
        return Rendering({}, as_message(unpacked(first["invalid"])))
    outcomes = [Rendered(problem=one.said()) if isinstance(one, Problem) else _rendered(one) for one in answers]
    return Rendering({conversation.name: one for conversation, one in zip(SUITE, outcomes, strict=True)})


def _rendered(answer: Mapping[str, Any]) -> Rendered:
    return Rendered(**{name: unpacked(value) for name, value in answer.items()})
