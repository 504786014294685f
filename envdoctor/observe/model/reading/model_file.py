"""Reading one file of a model's folder: regular files only, up to a size, without being held up."""

import os
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.names import printable
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

_FILES = Files()


def read_bytes(folder: str, name: str, limit: int) -> bytes | Unknown:
    """The content of ``folder/name``, or the reason why not: missing, larger than ``limit`` bytes, no regular file.

    Symbolic links are followed (in the Hub cache every file is one); a pipe or a device is not waited for.
    """
    try:
        return _FILES.whole(os.path.join(folder, name), limit)
    except FileNotFoundError:
        return Unknown(Message("the model's folder holds no {}", printable(name)))
    except OSError as error:
        return Unknown(Message("{} cannot be read: {}", printable(name), because_of(error)))


def read_object(folder: str, name: str, model: str) -> dict[str, Any] | Unknown:
    """A JSON object from a file; unknown when there is no such file.

    Raises :class:`ObservationError` when it cannot be read or is no JSON object: the user named this model, so judging
    without it would answer another question. ``model`` is named in it.
    """
    from envdoctor.observe.model.reading.json_object import LARGEST, JsonProblem, parse_object

    content = read_bytes(folder, name, LARGEST)
    if isinstance(content, Unknown):
        if os.path.exists(os.path.join(folder, name)):
            raise ObservationError("--model {}: {}", printable(model), content.reason)
        return content
    try:
        return parse_object(content).data
    except JsonProblem as error:
        raise ObservationError("{} of {} {}", name, printable(model), error) from None
