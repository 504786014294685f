"""Child script: render one chat template for several conversations in jinja2's sandbox, one JSON line for each.

Standard input is a JSON object with ``template`` (text), ``variables`` (bos_token and the like) and ``conversations``
(``name``, ``messages``, ``tools``, ``add_generation_prompt``). Each line of the output has ``name`` and either ``text``
(its first characters), ``length`` and ``digest`` of the whole, or ``refused`` (the template called raise_exception), or
``problem``. A line is written as soon as it is known: the parent ends this process when it takes too long.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from envdoctor.sandbox.templates import Refusal, template_environment

#: Characters of a rendering that are handed back.
_KEPT = 20_000
_MESSAGE = 300


def main() -> None:
    """Read the request from standard input, write the answers."""
    request = json.loads(sys.stdin.buffer.read())
    try:
        template = template_environment().from_string(request["template"])
    except Exception as error:
        _answer({"name": None, "problem": _problem(error)})
        return
    for conversation in request["conversations"]:
        answer: dict[str, Any] = {"name": conversation["name"]}
        try:
            text = template.render(
                messages=conversation["messages"],
                tools=conversation["tools"],
                documents=None,
                add_generation_prompt=conversation["add_generation_prompt"],
                **request["variables"],
            )
            answer.update(_summary(text))
        except Exception as error:
            if isinstance(error, Refusal):
                answer["refused"] = str(error)[:_MESSAGE]
            else:
                answer["problem"] = _problem(error)
        _answer(answer)
        text = ""  # what one conversation took is free for the next


def _summary(text: str) -> dict[str, Any]:
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {"text": text[:_KEPT], "length": len(text), "digest": digest}


def _problem(error: Exception) -> str:
    """What went wrong, as a clause that begins with the kind of the trouble."""
    kind = type(error).__name__
    try:
        message = str(error)[:_MESSAGE]
    except Exception:
        message = ""
    if kind == "SecurityError":
        return "it uses attributes or calls that the sandbox forbids" + (f" ({message})" if message else "")
    if isinstance(error, MemoryError):
        return "it needs more memory than it may have"
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    if kind in ("TemplateSyntaxError", "TemplateAssertionError"):
        return f"it is not a valid template ({message})"
    if isinstance(error, OverflowError) and "range" in message.lower():
        return "it asks for a range longer than the sandbox allows"
    return f"{kind}: {message}"


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
