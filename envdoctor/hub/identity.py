"""Who asks, and whom the token is for: the endpoint that the user chose, and no other host."""

from __future__ import annotations

from urllib.parse import urlsplit


def identity(token: str | bool | None) -> tuple[dict[str, str], str | None]:
    """The headers that say who asks, and the value of Authorization: the user's login unless that is switched off."""
    import platform

    import huggingface_hub
    from huggingface_hub import constants, get_token

    from envdoctor import __version__

    agent = f"envdoctor/{__version__}; hf_hub/{huggingface_hub.__version__}; python/{platform.python_version()}"
    if isinstance(token, str):
        found: str | None = token
    elif token is False or (token is None and constants.HF_HUB_DISABLE_IMPLICIT_TOKEN):
        found = None
    else:
        found = get_token()
    if found and not (found.isascii() and found.isprintable() and " " not in found):
        found = None  # it could not be sent in a header, and an error about it would show it
    return {"User-Agent": agent, "Accept": "*/*"}, f"Bearer {found}" if found else None


def is_endpoint(endpoint: str, url: str) -> bool:
    """Whether an address is the endpoint itself; https in the place of http on the default ports counts as the same."""
    here, there = urlsplit(endpoint), urlsplit(url)
    if here.hostname != there.hostname:
        return False
    if here.scheme == there.scheme:
        default = 443 if here.scheme == "https" else 80
        return (here.port or default) == (there.port or default)
    return (here.scheme, here.port or 80, there.scheme, there.port or 443) == ("http", 80, "https", 443)


def web_host(url: str) -> str | None:
    """The host of an address of the web; None for anything else."""
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        return None
