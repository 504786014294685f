"""The model: what its files on this machine say, as facts. Nothing is downloaded and nothing of it is run.

:func:`resolve` turns ``--model`` into a :class:`ModelSource`; :func:`observe_model` reads it. The contract of a module
that reads files: ``KEYS`` lists the facts it supplies, and ``observe(source)`` returns each of them once, with source
``"model"`` and the file's name as origin, for a source that has a folder. What a file does not say is :class:`Unknown`
with the reason, or ``ABSENT`` where saying nothing is the answer. Files are hostile until read: sizes are bounded, a
wrong type is a reason, and a ``config.json`` that is no configuration at all is a :class:`ModelError`.
"""

from __future__ import annotations

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.model.model_error import ModelError
from envdoctor.observe.model.reference import resolve
from envdoctor.observe.model.source import ModelSource

__all__ = ["ModelError", "ModelSource", "observe_model", "resolve"]


def observe_model(source: ModelSource) -> list[Fact]:
    """Every ``model.*`` fact of the source. Raises :class:`ModelError` when config.json cannot be a configuration."""
    from envdoctor.observe.model import config, remote_code, tokenizer_config, weights

    modules = (config, tokenizer_config, weights, remote_code)
    facts = _reference(source)
    if source.folder is None:
        reason = Unknown(source.missing)
        return facts + [Fact(key, reason, source.origin, "model") for module in modules for key in module.KEYS]
    for module in modules:
        facts += module.observe(source)
    return facts


def _reference(source: ModelSource) -> list[Fact]:
    """What ``--model`` itself says: repository, revision and folder."""
    path: Value = ABSENT
    revision: Value = Unknown(source.missing)
    if source.folder is not None:
        # A path that is not UTF-8 has lone surrogates, which no output could encode.
        path = source.folder.encode("utf-8", "replace").decode("utf-8")
        revision = source.revision or Unknown("the folder does not say which commit its files are of")
    repo: Value = source.repo or Unknown("a folder was given, which does not say which repository it came from")
    return [
        Fact("model.repo", repo, source.origin, "model"),
        Fact("model.revision", revision, source.origin, "model"),
        Fact("model.path", path, source.origin, "model"),
    ]
