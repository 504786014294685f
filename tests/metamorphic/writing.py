"""How commands and documents are written."""

import json
from typing import Any

import yaml
from saying import Arguments, Run

LONG = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": "auto"}


def options(values: dict[str, Any], *, bare: bool = False, dash: bool = False) -> list[str]:
    """Return the options of a command; with ``bare`` a switch has no word behind it."""
    words: list[str] = []
    for name, value in values.items():
        option = "--" + (name.replace("_", "-") if dash else name)
        if bare and isinstance(value, bool):
            words += [option] if value else []
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        elif isinstance(value, dict):
            words += [option, f"'{json.dumps(value)}'"]
        else:
            words += [option, f"'{value}'" if " " in str(value) else str(value)]
    return words


def shell(*words: str) -> dict[str, str]:
    return {"run.sh": " ".join(words) + "\n"}


def document(values: dict[str, Any], name: str = "train.yaml") -> dict[str, str]:
    return {name: yaml.safe_dump(dict(values), sort_keys=False)}


def put(run: Run, to: Arguments, **names: str | tuple[str, ...]) -> None:
    """Write each fact that is told under the first name that is known."""
    for fact, name in names.items():
        if (value := run.take(fact)) is not None:
            to.put(value, *([name] if isinstance(name, str) else name))


def targets(run: Run, to: Arguments, targets: str, saved: str, joined: bool) -> None:
    for fact, name in (("lora_targets", targets), ("lora_modules_to_save", saved)):
        if (value := run.take(fact)) is not None:
            to.put(",".join(value) if joined else value, name)
