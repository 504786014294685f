"""The answer to an error message as JSON: versioned, always English (``schemas/error.schema.json``)."""

import json
from typing import Any

from envdoctor import __version__
from envdoctor.observe.request import Target
from envdoctor.remedy.answer import Answer
from envdoctor.report.cleaned import cleaned
from envdoctor.report.json_report import json_data

SCHEMA_NAME = "envdoctor.error"
#: Within a major version fields are only added.
SCHEMA_VERSION = "1.0"


def render(answer: Answer, target: Target | None = None) -> str:
    """Return the answer as ASCII-only JSON with a final newline."""
    return json.dumps(document(answer, target), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def document(answer: Answer, target: Target | None = None) -> dict[str, Any]:
    """Return the answer as JSON data; ``target`` is the environment that it is for. Leave out what is unknown."""
    answer = cleaned(answer)
    failure = answer.reading.failure
    return {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "tool": {"name": "envdoctor", "version": __version__},
        "known": answer.known,
        "error": _known({"name": answer.reading.error, "message": answer.reading.message}),
        **({"asked": _known(failure._replace(message=""))} if failure is not None else {}),
        "homes": [_known(home._replace(having=None)) | {"releases": home.releases} for home in answer.homes],
        "moved": [_known(moved) for moved in answer.moved],
        **({"asker": _known(answer.asker)} if answer.asker is not None else {}),
        "ways": [_known(way) for way in answer.ways],
        "suspects": [_known(suspect) for suspect in answer.suspects],
        "rules": [_known(rule) for rule in answer.rules],
        "notes": [{"code": code, "about": about} for code, about in answer.notes],
        **({"target": cleaned(target)._asdict()} if target is not None else {}),
    }


def _known(value: Any) -> dict[str, Any]:
    """Return the value's fields without empty and false ones; a false ``there`` or ``applies`` stays as an answer."""
    answers = ("there", "applies")
    return {name: item for name, item in json_data(value).items() if item or (name in answers and item is False)}
