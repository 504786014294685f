"""What is judged, in the words of a report's first line."""

from typing import NamedTuple

from envdoctor.text.message import Message


class Target(NamedTuple):
    """``kind`` is venv, conda, system, path, root, lock, sbom, facts, report or none; ``because`` says why this
    one ("the active virtual environment (VIRTUAL_ENV)", "--python")."""

    kind: str
    path: str
    because: Message
