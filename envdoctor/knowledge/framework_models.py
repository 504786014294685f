"""From which release on a serving engine or a trainer knows a family of models: the table framework-models."""

from __future__ import annotations

from envdoctor.facts.values import Unknown
from envdoctor.knowledge.matrix import Matrix
from envdoctor.text.message import Message
from envdoctor.versions.pep440 import base_release, satisfies


def releases(matrix: Matrix, framework: str, family: str) -> str | None:
    """The releases that know the family, ``>=0.6.5,<0.11``; an empty text for all of them, None where none is known."""
    table = matrix.part("framework-models", framework)
    since = next((release for release, families in table["since"].items() if family in families), None)
    if since is None:
        return None
    until = [f"<{release}" for release, families in table["until"].items() if family in families]
    return ",".join([*([f">={since}"] if since != next(iter(table["since"])) else []), *until])


def knows(matrix: Matrix, framework: str, family: str, installed: str) -> bool | Unknown:
    """Whether a release has something of its own for the family."""
    known, release = releases(matrix, framework, family), base_release(installed)
    if known is None or release is None:
        return Unknown(Message("the table framework-models does not tell of {} in {}", family, framework))
    first = next(iter(matrix.part("framework-models", framework)["since"]))
    if ">=" not in known and satisfies(release, f"<{first}"):
        return Unknown(Message("the table begins with a later release"))
    return satisfies(release, known)


def asked_release(matrix: Matrix, framework: str, family: str, installed: str | None) -> str | None:
    """What the family asks of the framework, ``vllm>=0.6.5``; None where nothing is known, and where this release runs
    models that it has nothing for with transformers' classes."""
    known = releases(matrix, framework, family)
    fallback = matrix.part("framework-models", framework).get("fallback")
    release = base_release(installed) if installed else None
    if known is not None and release and fallback and not satisfies(release, known):
        known = None if satisfies(release, f">={fallback}") else known
    return None if known is None else framework + known
