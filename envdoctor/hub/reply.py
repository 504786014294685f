"""One HTTP answer as it arrives, whichever library huggingface_hub talks through: requests, httpx or httpx2.

Told apart by what the session can do, without importing any of them: requests up to huggingface_hub 0.36, httpx in 1.x,
httpx2 in 2.x.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

#: urllib3 waits until a piece is full, so pieces are small enough to keep an eye on the clock.
_PIECE = 1 << 14


class Reply(NamedTuple):
    """Status, headers (lower-case names), the body's pieces on demand, and how to hang up.

    ``pieces(decoded)`` undoes a Content-Encoding when asked to. Errors are those of the library below.
    """

    status: int
    headers: Mapping[str, str]
    pieces: Callable[[bool], Iterator[bytes]]
    close: Callable[[], None]


def open_reply(session: Any, url: str, headers: Mapping[str, str], seconds: float) -> Reply:
    """Send a GET and return when the headers are there; ``seconds`` bounds each wait on the socket, not their sum.

    Redirects are not followed: which header goes to which host is decided by the caller.
    """
    if not hasattr(session, "build_request"):
        response = session.get(
            url,
            headers=dict(headers),
            stream=True,
            allow_redirects=False,
            timeout=(seconds, seconds),
            auth=_keep,
        )
    else:
        request = session.build_request("GET", url, headers=dict(headers), timeout=(seconds, seconds, seconds, seconds))
        response = session.send(request, stream=True, follow_redirects=False)

    def pieces(decoded: bool) -> Iterator[bytes]:
        if hasattr(response, "raw"):
            return response.raw.stream(_PIECE, decode_content=decoded)  # type: ignore[no-any-return]
        return response.iter_bytes() if decoded else response.iter_raw()  # type: ignore[no-any-return]

    lower = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, lower, pieces, response.close)


def _keep(request: Any) -> Any:
    """requests would put the password of a .netrc in the place of the token, unless there is an ``auth``."""
    return request
