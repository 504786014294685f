"""Renders one chat template for several conversations in jinja2's sandbox. Runs in a bounded child.

It is asked with ``template`` (text), ``variables`` (bos_token and the like) and what else is ``given`` to the template.
It answers with ``text`` (its first characters), ``digest`` of the whole and of the text with ``marks`` around what the
template marks as the assistant's (None where it marks nothing), ``refused`` (the template called
raise_exception), a ``problem``, or why the template is ``invalid``.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from envdoctor.system.message import Message, packed
from envdoctor.system.templates import MARKS, Refusal, template_environment

#: Characters of a rendering that are handed back.
_KEPT = 20_000
_MESSAGE = 300


def answer(*, template: str, variables: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Render one conversation."""
    compiled = _compiled(template)
    if isinstance(compiled, str):
        return {"invalid": packed(compiled)}
    try:
        text = compiled.render(documents=None, **given, **variables)
        marked = text
        if "endgeneration" in template:  # add_generation_prompt alone marks nothing
            marked = _compiled(template, marked=True).render(documents=None, **given, **variables)
        return {"text": text[:_KEPT], "digest": _digest(text), "marks": _digest(marked) if MARKS[0] in marked else None}
    except Refusal as error:
        return {"refused": str(error)[:_MESSAGE]}
    except Exception as error:
        return {"problem": packed(_problem(error))}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _compiled(template: str, marked: bool = False) -> Any:
    """Return the template, or why it is invalid."""
    try:
        return template_environment(marked).from_string(template)
    except Exception as error:
        return _problem(error)


def _problem(error: Exception) -> Message:
    """Return what went wrong, as a clause that begins with the kind of trouble."""
    kind = type(error).__name__
    try:
        message = str(error)[:_MESSAGE]
    except Exception:
        message = ""
    if kind == "SecurityError":
        return Message("it uses attributes or calls that the sandbox forbids{}", f" ({message})" if message else "")
    if isinstance(error, MemoryError):
        return Message("it needs more memory than it may have")
    if isinstance(error, RecursionError):
        return Message("it calls itself without end")
    if kind in ("TemplateSyntaxError", "TemplateAssertionError"):
        return Message("it is not a valid template ({})", message)
    if isinstance(error, OverflowError) and "range" in message.lower():
        return Message("it asks for a range longer than the sandbox allows")
    return Message("{}: {}", kind, message)
