"""Why a request failed, in words for a person and in fields for the caller; whether it is worth another attempt."""

import re
from collections.abc import Mapping
from typing import Literal

from envdoctor.system.message import Message, MessageError

_UNCONNECTED = Message("no connection")
_Cause = Literal["offline", "timeout", "connect", "certificate", "dropped", "other"]
#: What happened, by the names of the classes in the chain of causes, and a clause for people; the first that fits.
_CAUSES: tuple[tuple[str, _Cause, Message], ...] = (
    ("SSLError", "certificate", Message("no encrypted connection; a proxy's certificate goes into SSL_CERT_FILE")),
    ("gaierror|NameResolutionError", "connect", Message("its name cannot be resolved")),
    ("ConnectionRefusedError", "connect", Message("the connection was refused")),
    ("OfflineModeIsEnabled", "offline", Message("huggingface_hub is in offline mode")),
    ("ProxyError", "connect", Message("the proxy did not let the connection through")),
    ("Timeout", "timeout", Message("it did not answer in time")),
    ("ConnectError|NewConnectionError", "connect", _UNCONNECTED),
    ("ConnectionError|Protocol|ReadError|Incomplete|Chunked", "dropped", Message("the connection broke off")),
    ("DecodeError|DecodingError|ContentDecoding", "dropped", Message("the answer cannot be decompressed")),
    ("", "other", Message("the request failed")),
)
#: What kept a request from bringing what was asked for; ``limit`` is one of ours, ``refused`` an answer of the server.
Failure = Literal["offline", "network", "timeout", "protocol", "refused", "limit", "usage"]


class TransportError(MessageError):
    """A request that did not bring what was asked for, after all retries. The message is a clause. For ``refused`` the
    answer's ``status`` and the Hub's ``code`` (RepoNotFound, GatedRepo, …) and ``said`` (its own words, printable) are
    given; ``wait`` is what a busy one asks for, in seconds."""

    def __init__(
        self,
        id: str,
        *values: object,
        kind: Failure = "protocol",
        status: int = 0,
        code: str = "",
        said: str = "",
        wait: float | None = None,
    ) -> None:
        super().__init__(id, *values)
        self.kind, self.status = kind, status
        self.code, self.said = code, said
        self.wait = wait


class Again(TransportError):
    """What went wrong may go right the next time: only the attempts of one request see it."""


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by Retry-After (seconds or a date) or by ``RateLimit: "api";r=0;t=55``."""
    after = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", after):
        return float(after)
    if after:
        from datetime import datetime, timezone
        from email.utils import parsedate_to_datetime

        try:
            when = parsedate_to_datetime(after)
            return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())
        except (TypeError, ValueError):
            pass
    match = re.search(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", headers.get("ratelimit", ""))
    return float(match[1]) if match else None


def describe(error: BaseException) -> tuple[_Cause, Message]:
    """Return the kind of a library's exception, and a clause for people that says what happened. The names of requests,
    httpx and httpx2 are not relied on: the chain of causes ends in exceptions of the standard library; where it does
    not, the class names that all three share decide. No text of the exception is shown: it holds addresses with
    signatures."""
    import ssl  # here, because `check` knows this module and asks no network

    chain = _chain(error)
    names = " ".join(base.__name__ for item in chain for base in type(item).__mro__)
    cause, said = next((cause, said) for pattern, cause, said in _CAUSES if re.search(pattern, names))
    details: list[str] = []
    if cause == "other":
        details = [type(error).__name__]
    elif cause == "certificate":
        details = [item.reason for item in chain if isinstance(item, ssl.SSLError) and item.reason]
    elif said == _UNCONNECTED:
        details = [Message(item.strerror) for item in chain if isinstance(item, OSError) and item.strerror]
    return cause, Message("{} ({})", said, details[-1]) if details else said


def _chain(error: BaseException) -> list[BaseException]:
    """Return the exception, its causes and contexts, and the exceptions in urllib3's ``args`` and ``reason``."""
    errors: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting and len(errors) < 32:
        item = waiting.pop(0)
        if isinstance(item, BaseException) and item not in errors:
            errors.append(item)
            waiting += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
    return errors
