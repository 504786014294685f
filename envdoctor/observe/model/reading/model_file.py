"""Reading one file of a model's folder: regular files only, up to a size, without being held up."""

from __future__ import annotations

import os
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.observe.model.reading.model_error import ModelError, printable
from envdoctor.text.files import Files, because_of

__all__ = ["JSON_LIMIT", "read_bytes", "read_object"]

_FILES = Files()
#: The largest config.json of the Hub's well-known models is far below 1 MiB; tokenizer_config.json reaches a few.
JSON_LIMIT = 16 << 20


def read_bytes(folder: str, name: str, limit: int) -> bytes | Unknown:
    """The content of ``folder/name``, or the reason why not: missing, larger than ``limit`` bytes, no regular file.

    Symbolic links are followed (in the Hub cache every file is one); a pipe or a device is not waited for.
    """
    shown = printable(name)
    try:
        return _FILES.whole(os.path.join(folder, name), limit)
    except FileNotFoundError:
        return Unknown(f"the model's folder holds no {shown}")
    except OSError as error:
        return Unknown(f"{shown} cannot be read: {because_of(error)}")


def read_object(folder: str, name: str, model: str) -> dict[str, Any] | Unknown:
    """A JSON object from a file; unknown when there is no such file.

    Raises :class:`ModelError` when it is too large, cannot be read, is not JSON, nested too deeply, or not an object:
    the user named this model, so judging without it would answer another question. ``model`` is named in it.
    """
    import json

    content = read_bytes(folder, name, JSON_LIMIT)
    if isinstance(content, Unknown):
        if os.path.exists(os.path.join(folder, name)):
            raise ModelError(f"--model {printable(model)}: {content.reason}")
        return content
    place = f"{name} of {printable(model)}"
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ModelError(f"{place} is not UTF-8 text: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{place} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError:
        raise ModelError(f"{place} holds a number that is too long to read") from None
    except (RecursionError, MemoryError):
        raise ModelError(f"{place} is nested too deeply to be a configuration") from None
    if not isinstance(data, dict):
        raise ModelError(f"{place} is not a JSON object but {_kind(data)}")
    return data


def _kind(data: object) -> str:
    if isinstance(data, list):
        return "a list"
    if isinstance(data, str):
        return "text"
    return "null" if data is None else "true or false" if isinstance(data, bool) else "a number"
