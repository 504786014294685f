"""What the probe ``imports`` saw, as the items of the fact ``import_run``: one for each statement that was run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from envdoctor.facts.values import ABSENT, Records, Value
from envdoctor.probe.running import Outcome
from envdoctor.text.message import Message, joined

_OUTCOMES = ("works", "fails", "crashes", "hangs")
_ENDINGS = {"hangs": Message("it did not end"), "crashes": Message("its process ended")}
#: ``peft/peft_model.py:37``, ``peft/__init__.py:12``, ``six.py:3``, ``torch/_C.abi3.so:0``
_PLACE = re.compile(r"([^:.]+)(?:\.py|\.[^:]*\.so|\.so)?:(\d{1,7})\Z")


def import_runs(outcomes: Iterable[Outcome]) -> Iterable[Records]:
    """The list of the runs, if there was such a job; incomplete when its child did not end by itself."""
    for outcome in outcomes:
        if outcome.job.entries:
            items = [_item(seen) for seen in outcome.observations if seen.get("judge") == "import"]
            yield Records(
                tuple(items), None if outcome.ending == "ok" else Message("{}: {}", outcome.ending, outcome.detail)
            )


def failure_of(observation: Mapping[str, Any]) -> Message:
    """Why the statement failed, a clause: the first cause of its exception."""
    cause = _cause(observation)
    said = joined([text for text in (_text(cause, "type"), _text(cause, "message")) if text], ": ")
    return said or _ENDINGS.get(str(observation.get("outcome")), Message("it gave no answer"))


def _item(seen: Mapping[str, Any]) -> Mapping[str, Value]:
    cause, outcome = _cause(seen), seen.get("outcome")
    return {
        "entry": str(seen.get("case"))[:200],
        "outcome": outcome if outcome in _OUTCOMES else "crashes",
        "error": ABSENT if outcome == "works" else failure_of(seen),
        "place": _module_place(_text(cause, "place")),
        "name": _text(cause, "name") or ABSENT,
    }


def _cause(seen: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last of the exceptions that led to one another; nothing where the child told none."""
    errors = seen.get("errors")
    last = errors[-1] if isinstance(errors, list) and errors else None
    return last if isinstance(last, Mapping) else {}


def _module_place(place: str) -> Value:
    """``peft/peft_model:37`` of ``peft/peft_model.py:37``, as links name the places in which something is asked for."""
    match = _PLACE.match(place)
    return f"{match[1].removesuffix('/__init__')}:{match[2]}" if match else ABSENT


def _text(found: Mapping[str, Any], key: str) -> str:
    text = found.get(key)
    return text[:400] if isinstance(text, str) else ""
