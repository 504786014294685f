"""What ``--model`` itself says: repository, revision and folder."""

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.system.message import Message

KEYS = ("model.repo", "model.revision", "model.path")


def observe(request: Request) -> list[Fact]:
    """The facts of ``KEYS``."""
    source = request.source
    path: Value = ABSENT
    revision: Value = Unknown(source.missing)
    if source.folder is not None:
        # A path that is not UTF-8 has lone surrogates, which no output could encode.
        path = source.folder.encode("utf-8", "replace").decode("utf-8")
        revision = source.revision or Unknown(Message("the folder does not say which commit its files are of"))
    unnamed = Message("a folder was given, which does not say which repository it came from")
    repo: Value = source.repo or Unknown(unnamed)
    return [Fact(key, value, source.origin, "model") for key, value in zip(KEYS, (repo, revision, path), strict=True)]
