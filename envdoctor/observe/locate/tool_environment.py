"""Whether an environment belongs to a tool that installed envdoctor for itself (uv, pipx, hf, pre-commit)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from envdoctor.observe.locate.installation import read_settings
from envdoctor.text.files import Files

__all__ = ["tool_of"]

#: Buckets of uv's cache that hold environments: uvx, uv run --with, scripts.
_UV_BUCKET = ("archive-v", "environments-v", "builds-v")


def tool_of(prefix: str, files: Files, environ: Mapping[str, str]) -> str | None:
    """The tool whose own environment this is ("uv tool", "uv", "pipx", "hf", "pre-commit"), or None.

    Judging such an environment would judge envdoctor's own dependencies. A plain ``uv venv`` is no tool environment.
    """
    if files.is_file(os.path.join(prefix, "uv-receipt.toml")):
        return "uv tool"
    if files.is_file(os.path.join(prefix, "pipx_metadata.json")):
        return "pipx"
    extension = os.path.dirname(prefix)  # huggingface_hub/cli/extensions.py: hf-NAME/manifest.json, hf-NAME/venv
    if os.path.basename(extension).startswith("hf-") and files.is_file(os.path.join(extension, "manifest.json")):
        return "hf"
    real = files.resolved(prefix)
    if any(part.startswith(_UV_BUCKET) for part in real.split(os.sep)) and (
        any(_within(real, cache) for cache in _caches("uv", "UV_CACHE_DIR", environ))
        # A cache chosen with --cache-dir, or the temporary one of --no-cache, is known by its shape alone.
        or "uv" in (read_settings(real, files) or {})
    ):
        return "uv"
    for tool, variable in (("pre-commit", "PRE_COMMIT_HOME"), ("prek", "PREK_HOME")):
        if any(_within(real, cache) for cache in _caches(tool, variable, environ)):
            return tool
    return None


def _caches(tool: str, variable: str, environ: Mapping[str, str]) -> list[str]:
    """Where a tool may keep its cache: its variable, XDG_CACHE_HOME, ~/.cache, %LOCALAPPDATA%."""
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    places = [environ.get(variable, ""), os.path.join(home, ".cache", tool)]
    if environ.get("XDG_CACHE_HOME"):
        places.append(os.path.join(environ["XDG_CACHE_HOME"], tool))
    if environ.get("LOCALAPPDATA"):
        places.append(os.path.join(environ["LOCALAPPDATA"], tool, "cache"))
    return [os.path.realpath(place) for place in places if place]


def _within(path: str, folder: str) -> bool:
    return os.path.normcase(path).startswith(os.path.normcase(folder).rstrip(os.sep) + os.sep)
