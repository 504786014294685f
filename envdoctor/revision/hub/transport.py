"""Requests to a Hub through the session of the installed huggingface_hub, with our own retries, deadline and log.

That library talks through requests (up to 0.36), httpx (1.x) or httpx2 (2.x): told apart by what the session can do,
without importing any of them. The token is for the endpoint that the user chose, and for no other host.
"""

import builtins
import json
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from envdoctor.observe.model.names import printable
from envdoctor.system.message import Message, MessageError

if TYPE_CHECKING:
    from concurrent.futures import Future

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


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by Retry-After (seconds or a date) or by ``RateLimit: "api";r=0;t=55``."""
    after = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", after):
        return float(after)
    if after:
        from datetime import datetime, timezone
        from email.utils import parsedate_to_datetime

        with suppress(TypeError, ValueError):
            return max(0.0, (parsedate_to_datetime(after) - datetime.now(timezone.utc)).total_seconds())
    match = re.search(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", headers.get("ratelimit", ""))
    return float(match[1]) if match else None


def _describe(error: BaseException) -> tuple[_Cause, Message]:
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


#: urllib3 waits until a piece is full, so pieces are small enough to keep an eye on the clock.
_PIECE = 1 << 14
Result = TypeVar("Result")

_ATTEMPTS = 4
_REDIRECTS = 5
#: Bodies of refusals and redirects up to this size are read, so that the connection can be used again.
_DRAIN = 1 << 16
_BUSY = (408, 425, 429, 500, 502, 503, 504)
#: Values of a JSON answer, counted by their commas: parsing holds up every thread, the one that keeps the time too.
#: A list of 100,000 files has 700,000.
_MOST_VALUES = 1_000_000


def _is_endpoint(endpoint: str, url: str) -> bool:
    """Return whether an address is the endpoint; https in place of http on the default ports is the same."""
    parts = [urlsplit(address) for address in (endpoint, url)]
    here, there = ((side.scheme, side.port or (443 if side.scheme == "https" else 80)) for side in parts)
    same = here == there or (here, there) == (("http", 80), ("https", 443))
    return same and parts[0].hostname == parts[1].hostname


def _web_host(url: str) -> str | None:
    """Return the host of an address of the web; None for anything else."""
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        return None


class Reply(NamedTuple):
    """Address, status, headers (lower-case names), the body's pieces on demand, and how to hang up. ``pieces(decoded)``
    undoes a Content-Encoding when asked to. Errors are those of the library below."""

    place: str
    status: int
    headers: Mapping[str, str]
    pieces: Callable[[bool], Iterator[bytes]]
    close: Callable[[], None]


def _open_reply(session: Any, url: str, headers: Mapping[str, str], seconds: float) -> Reply:
    """Send a GET and return when the headers are there, without redirects; ``seconds`` bounds each wait."""
    if not hasattr(session, "build_request"):
        # unless there is an ``auth``, requests would put the password of a .netrc in the place of the token
        as_given = {"stream": True, "allow_redirects": False, "auth": lambda request: request}
        response = session.get(url, headers=dict(headers), timeout=(seconds, seconds), **as_given)
    else:
        request = session.build_request("GET", url, headers=dict(headers), timeout=(seconds, seconds, seconds, seconds))
        response = session.send(request, stream=True, follow_redirects=False)

    def pieces(decoded: bool) -> Iterator[bytes]:
        if hasattr(response, "raw"):
            return response.raw.stream(_PIECE, decode_content=decoded)  # type: ignore[no-any-return]
        return response.iter_bytes() if decoded else response.iter_raw()  # type: ignore[no-any-return]

    lower = {name.lower(): value for name, value in response.headers.items()}
    return Reply(url, response.status_code, lower, pieces, response.close)


@dataclass(kw_only=True, eq=False, repr=False)
class Transport:
    """The way to one Hub for the length of one command. Raises :class:`TransportError` (kind usage) when
    huggingface_hub or HF_ENDPOINT is not usable. ``timeout`` bounds everything that is asked of it, in seconds from now
    on; ``patience`` each wait for an answer. ``notice`` is told of long waits. Endpoint and token (unless given),
    proxies and offline mode are huggingface_hub's. Its ``build_hf_headers`` is not called: it looks up the agent
    registry on the network unless telemetry is off, which is the host process' to decide."""

    endpoint: str = ""
    timeout: float = 60.0
    patience: float = 10.0
    connections: int = 12
    offline: bool = False
    token: str | bool | None = None
    pause: float = 0.4
    notice: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        try:
            from huggingface_hub import constants
        except ImportError as error:
            raise TransportError("huggingface_hub cannot be imported ({})", error.name or error, kind="usage") from None

        self.endpoint = str(self.endpoint or constants.ENDPOINT).rstrip("/")
        host = _web_host(self.endpoint)
        if not host:
            raise TransportError("HF_ENDPOINT is not a web address (https://…)", kind="usage")
        self.host = host
        self.offline = self.offline or bool(constants.HF_HUB_OFFLINE)
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._threads = 0
        #: Requests so far, every hop of a redirect counted, and bytes of bodies.
        self.requests = self.received = 0
        #: Names that were redirected, and what sizes of safetensors headers were seen per repository.
        self.moved: dict[str, str] = {}
        self.header_sizes: dict[str, int] = {}
        self._end = time.monotonic() + self.timeout
        self._lock = threading.Lock()
        self._reached = False
        self._not_before = 0.0

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline; 0 if it is past."""
        return max(0.0, self._end - time.monotonic())

    @property
    def has_token(self) -> bool:
        """Return whether requests to the endpoint carry a token."""
        return self._identity[1] is not None

    def side_by_side(self, calls: Sequence[Callable[[], Result]]) -> list[Result | TransportError]:
        """Return the result of each call, or why it failed. Other exceptions are raised: they are our own defects. The
        threads are daemons: one that hangs in a name lookup cannot be stopped from outside, and the pools of the
        standard library wait for theirs when the interpreter ends."""
        from concurrent.futures import Future, wait

        futures: list[Future[Result]] = [Future() for _ in calls]
        for job in zip(futures, calls, strict=True):
            self._jobs.put(job)
        while self._threads < min(self.connections, len(calls)):
            self._threads += 1
            threading.Thread(target=self._work, name="envdoctor-hub", daemon=True).start()
        for late in wait(futures, self.seconds_left).not_done:
            late.cancel()
        results: list[Result | TransportError] = []
        for future in futures:
            error = future.exception() if future.done() and not future.cancelled() else self._late()
            results.append(error if isinstance(error, TransportError) else future.result())
        return results

    def in_time(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call in another thread, in time, or raise :class:`TransportError`."""
        result = self.side_by_side([call])[0]
        if isinstance(result, TransportError):
            raise result
        return result

    def fetch(
        self, url: str, limit: int, take: Callable[[Mapping[str, str], bytes, str], Result], *, compressed: bool = False
    ) -> Result:
        """Return what ``take`` makes of the headers, a whole body of at most ``limit`` bytes, and the answering host.
        It may raise :class:`Again` for another attempt. Raises :class:`TransportError`."""

        def once() -> Result:
            with self.open(url, compressed=compressed) as reply:
                self.expect(reply, (200,))
                body = self.body(reply, limit, decoded=compressed)
            host = _host(reply.place)
            if len(body) > limit:
                if is_web_page(reply.headers, body):
                    raise TransportError("the answer of {} is a web page", host)
                raise TransportError("the answer of {} has more than {} bytes", host, f"{limit:,}")
            return take(reply.headers, body, host)

        return self.persist(once)

    def fetch_json(self, url: str, limit: int) -> tuple[Any, Mapping[str, str]]:
        """Return a JSON body and the headers. Raises :class:`TransportError`, for a web page in its place too."""

        def take(headers: Mapping[str, str], body: bytes, host: str) -> tuple[Any, Mapping[str, str]]:
            if is_web_page(headers, body):
                text = (
                    "{} answered with a web page where the Hub answers with data: a login page of this network or "
                    "a proxy stands in between, or HF_ENDPOINT names no Hub"
                )
                raise TransportError(text, host)
            if body.count(b",") > _MOST_VALUES:
                text = "the answer of {} has more than {} values, which no Hub sends"
                raise TransportError(text, host, f"{_MOST_VALUES:,}")
            try:
                return json.loads(body.decode("utf-8")), headers
            except (ValueError, RecursionError, MemoryError):
                # mirrors leave the length out: then nothing else tells that the end is missing
                raise Again("the answer of {} is not JSON", host, kind="protocol") from None

        return self.fetch(url, limit, take, compressed=True)

    @contextmanager
    def open(self, url: str, *, range: str = "", compressed: bool = False) -> Iterator[Reply]:
        """Yield the answer at the end of the redirects. Raises :class:`TransportError`."""
        if self.offline:
            raise TransportError("offline mode is on", kind="offline")
        from huggingface_hub.utils import get_session  # type: ignore[attr-defined,unused-ignore]

        # requests' sessions are one a thread there, httpx's one a process: both are asked for where they are used.
        session = get_session()
        address = url
        for _ in builtins.range(_REDIRECTS + 1):
            headers, authorization = self._identity
            headers = {**headers, "Accept-Encoding": "gzip" if compressed else "identity"}
            headers |= {"Range": range} if range else {}
            if authorization and _is_endpoint(self.endpoint, address):  # for no other host
                headers["Authorization"] = authorization
            # What one thread was told holds for all: a server that limits requests is not asked on by the others.
            pause = self._not_before - time.monotonic()
            if pause >= self.seconds_left > 0:
                raise TransportError("{} asked to wait {} s more", self.host, f"{pause:.0f}", kind="network")
            time.sleep(max(0.0, pause))
            began = time.monotonic()
            if began >= self._end:
                raise self._late()
            with self._lock:
                self.requests += 1
            reply = None
            try:
                reply = _open_reply(session, address, headers, max(0.05, min(self.patience, self._end - began)))
                self._reached = True
                target = reply.headers.get("location", "")
                if reply.status not in (301, 302, 303, 307, 308) or not target:
                    yield reply
                    return
                following = ""
                with suppress(ValueError):
                    following = urljoin(address, target)
                if not _web_host(following):
                    raise TransportError("it redirects to an invalid web address", kind="protocol")
                if following.startswith("http:") and address.startswith("https:"):
                    raise TransportError("it redirects from https to http", kind="protocol")
                self._drain(reply)
            except TransportError:
                raise
            except Exception as error:  # the library's own exceptions have no common base
                raise self._failed(error, address) from None
            finally:
                if reply is not None:
                    reply.close()
            address = following
        raise TransportError("more than {} redirects", _REDIRECTS, kind="protocol")

    def body(self, reply: Reply, limit: int, *, decoded: bool = False) -> bytes:
        """Return the body, ``limit`` + 1 bytes of it at most. A body shorter than announced is asked for again."""
        content = bytearray()
        for piece in self._pieces(reply, decoded):
            content += piece
            if len(content) > limit:
                return bytes(content[: limit + 1])
            if time.monotonic() >= self._end:
                raise self._late()
        announced = reply.headers.get("content-length", "")
        encoded = reply.headers.get("content-encoding", "identity") != "identity"
        if not encoded and announced.isdigit() and len(content) < int(announced):
            text = "the connection broke off after {} of {} bytes"
            raise Again(text, f"{len(content):,}", f"{int(announced):,}", kind="network")
        return bytes(content)

    def persist(self, once: Callable[[], Result]) -> Result:
        """Try up to four times, with growing or asked pauses, before the deadline. Raises :class:`TransportError`."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return once()
            except Again as error:
                again = error
            grown = self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311
            wait = grown if again.wait is None else again.wait
            # A server that is silent, or wrong, is asked twice; one that is busy may need longer.
            last = attempt == (2 if again.kind in ("timeout", "protocol") else _ATTEMPTS)
            if last or wait >= self.seconds_left:
                message = again.message
                message = Message("{} ({} attempts)", message, attempt) if attempt > 1 else message
                message = Message("{}; it asks to wait {} s", message, f"{again.wait:.0f}") if again.wait else message
                raise TransportError(message, kind=again.kind, status=again.status)
            if wait > 2 and self.notice is not None:
                self.notice(Message("{} is busy: waiting {} s", self.host, f"{wait:.0f}"))
            time.sleep(wait)

    def _work(self) -> None:
        while True:
            future, call = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as error:  # handed to the thread that waits
                    future.set_exception(error)

    @cached_property
    def _identity(self) -> tuple[dict[str, str], str | None]:
        """Return the headers that say who asks, and the value of Authorization: the login unless it is switched off."""
        import platform

        import huggingface_hub
        from huggingface_hub import constants, get_token

        from envdoctor import __version__

        agent = f"envdoctor/{__version__}; hf_hub/{huggingface_hub.__version__}; python/{platform.python_version()}"
        silent = self.token is False or (self.token is None and constants.HF_HUB_DISABLE_IMPLICIT_TOKEN)
        token = self.token if isinstance(self.token, str) else None if silent else get_token()
        # another one could not be sent in a header, and an error about it would show it
        sendable = token and token.isascii() and token.isprintable() and " " not in token
        return {"User-Agent": agent, "Accept": "*/*"}, f"Bearer {token}" if sendable else None

    def expect(self, reply: Reply, statuses: Sequence[int]) -> None:
        """Raise for every other status."""
        if reply.status in statuses:
            return
        self._drain(reply)
        host, status = _host(reply.place), reply.status
        if status in _BUSY:
            words = Message("limits requests") if status == 429 else Message("has trouble")
            wait = _asked_wait(reply.headers)
            self._not_before = max(self._not_before, time.monotonic() + (wait or 0.0))
            raise Again("{} {} (HTTP {})", host, words, status, kind="network", wait=wait, status=status)
        code, said = (printable(reply.headers.get(f"x-error-{name}", "")) for name in ("code", "message"))
        raise TransportError("{} answered HTTP {}", host, status, kind="refused", status=status, code=code, said=said)

    def _drain(self, reply: Reply) -> None:
        left = _DRAIN
        for piece in self._pieces(reply, False):
            left -= len(piece)
            if left < 0 or time.monotonic() >= self._end:
                return

    def _failed(self, error: Exception, place: str) -> Exception:
        """Return the exception to raise for one of the library."""
        kind, words = _describe(error)
        host = _host(place)
        if kind == "offline":
            return TransportError(words, kind="offline")
        if kind == "other" and not isinstance(error, OSError):
            return TransportError("{}: {}", host, words, kind="protocol")
        if kind == "certificate" or (kind == "connect" and not self._reached):
            # Nothing was ever reached: without a network there is nothing to wait for.
            return TransportError("{} cannot be reached: {}", host, words, kind="network")
        if time.monotonic() >= self._end:
            return self._late()
        if kind == "timeout":
            seconds = f"{min(self.patience, self.timeout):.3g}"
            return Again("{} did not answer within {} s", host, seconds, kind="timeout")
        return Again("{}: {}", host, words, kind="network")

    def _late(self) -> TransportError:
        text = "{} did not give everything within {} s (--timeout)"
        return TransportError(text, self.host, f"{self.timeout:.3g}", kind="timeout")

    def _pieces(self, reply: Reply, decoded: bool) -> Iterator[bytes]:
        for piece in reply.pieces(decoded):
            with self._lock:
                self.received += len(piece)
            yield piece


def is_web_page(headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a body is HTML, as login pages of networks and error pages of proxies are."""
    begin = body[:64].lstrip().lower()
    return "text/html" in headers.get("content-type", "") or begin.startswith((b"<!doctype", b"<html"))


def _host(url: str) -> str:
    return _web_host(url) or Message("the server")
