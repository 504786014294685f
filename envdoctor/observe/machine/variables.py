"""Environment variables that change what torch, CUDA and the training stack do: an allow-list, credentials removed."""

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.system.clean import without_credentials, without_url_credentials
from envdoctor.system.message import Message

KEYS = ("env.*",)
_LIMIT = 4096


def observe(request: Request) -> list[Fact]:
    """``env.NAME`` for each name of the registry: the value without credentials, or ABSENT when it is not set."""
    origin, environ = Message("environment variables"), request.environ
    return [
        Fact(f"env.{name}", _value(environ.get(name), name, privacy), origin, "machine")
        for name, privacy in request.variables.items()
    ]


def _value(text: str | None, name: str, privacy: str) -> Value:
    if text is None:
        return ABSENT
    if len(text) > _LIMIT:
        return Unknown(Message("{} is {} characters long; at most {} are read", name, len(text), _LIMIT))
    # Python keeps bytes of the environment that are not UTF-8 as lone surrogates, which no output could encode.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return without_url_credentials(text) if privacy == "host" else without_credentials(text)
