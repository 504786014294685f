"""Rendering one chat template for the whole suite, in a bounded child."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.revision.template.parts.conversations import SUITE

#: For all conversations together. Real templates take a few milliseconds each; the rest is the start of Python.
SECONDS = 8.0
_MEMORY_MIB = 256
_OUTPUT = 2 << 20
_SAID = {
    "memory": "it needs more memory than it may have",
    "output-limit": "it writes without end",
    "crash": "the interpreter that rendered it ended abnormally",
}


class Rendered(NamedTuple):
    """The outcome for one conversation.

    ``text`` is the rendering (its first 20,000 characters), ``digest`` stands for the whole; ``refused`` is what the
    template gave to raise_exception, ``problem`` a clause about any other trouble. Two of the three are None.
    """

    text: str | None = None
    digest: str | None = None
    refused: str | None = None
    problem: str | None = None

    def same(self, other: "Rendered") -> bool:
        """Whether both are the same text, or both refuse, or both fail in the same way."""
        if self.text is not None or other.text is not None:
            return self.digest == other.digest
        return (self.refused is None) == (other.refused is None) and self.problem == other.problem


class Rendering(NamedTuple):
    """All outcomes, by the name of the conversation; ``failure`` says why none could be had at all."""

    outcomes: Mapping[str, Rendered]
    failure: str | None = None


def render(template: str, variables: Mapping[str, str], *, seconds: float = SECONDS) -> Rendering:
    """The outcomes of a template. ``variables`` are special tokens such as ``bos_token``.

    Nothing that the template does can hold the caller up for longer than ``seconds``. What was rendered before a limit
    was hit is kept; the conversation that hit it and those after it carry the problem.
    """
    from envdoctor.sandbox.child import own_python, run_child

    request = {
        "template": template,
        "variables": dict(variables),
        "conversations": [conversation._asdict() for conversation in SUITE],
    }
    child = run_child(
        own_python("envdoctor.revision.template.parts.render_suite", packages=True),
        json.dumps(request).encode(),
        seconds=seconds,
        memory_mib=_MEMORY_MIB,
        output_limit=_OUTPUT,
    )
    answers = _answers(child.stdout)
    if None in answers:
        return Rendering({}, str(answers[None].get("problem")))
    outcomes = {str(name): _outcome(answer) for name, answer in answers.items()}
    if child.status == "ok":
        return Rendering(outcomes)
    if child.status == "failed" and not outcomes:
        return Rendering({}, f"it could not be rendered here: {_last_line(child.stderr_tail)}")
    said = _SAID.get(child.status)
    if child.status == "timeout":
        said = f"it did not end within {seconds:g} s"
    problem = said or "it ended the interpreter that rendered it"
    left = [conversation.name for conversation in SUITE if conversation.name not in outcomes]
    return Rendering({**outcomes, **{name: Rendered(problem=problem) for name in left}})


def _answers(output: bytes) -> dict[str | None, dict[str, Any]]:
    answers: dict[str | None, dict[str, Any]] = {}
    for line in output.split(b"\n"):
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # the last line of a child that was ended in the middle of it
        if isinstance(answer, dict) and "name" in answer:
            answers[answer["name"]] = answer
    return answers


def _outcome(answer: Mapping[str, Any]) -> Rendered:
    return Rendered(answer.get("text"), answer.get("digest"), answer.get("refused"), answer.get("problem"))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "the interpreter did not start"
