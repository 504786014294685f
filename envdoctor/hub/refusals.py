"""What a person reads when a repository, a revision or a file cannot be had from the Hub: what happened, what to do."""

from __future__ import annotations

from envdoctor.hub.snapshot import SnapshotError
from envdoctor.hub.transport import Transport
from envdoctor.hub.transport_error import TransportError
from envdoctor.text.message import Message, said_by

_LOGIN = Message("log in (hf auth login) or set HF_TOKEN")


def listing_refused(error: TransportError, repo: str, revision: str, transport: Transport) -> SnapshotError:
    """The error for a repository or revision as a whole."""
    host = transport.host
    if error.kind == "offline":
        return SnapshotError(
            f"{repo} @ {revision} was not asked for on {host}: offline mode is on (HF_HUB_OFFLINE or --offline);"
            " give two folders, or revisions that are in the local cache",
            "offline",
        )
    if error.kind == "network" or error.kind == "timeout":  # noqa: PLR1714 (a type checker knows what is left)
        return SnapshotError(
            f"{repo} @ {revision}: {error}; check the network, the proxy and HF_ENDPOINT, or give two folders",
            error.kind,
        )
    if error.kind != "refused":
        return SnapshotError(f"{repo} @ {revision}: {error}", "usage" if error.kind == "usage" else "protocol")
    token = transport.has_token
    if error.code == "RevisionNotFound":
        return SnapshotError(
            f"{repo} has no revision {revision} on {host}: give a branch, a tag, a commit, refs/pr/N or @date",
            "revision-not-found",
        )
    if error.code == "GatedRepo":
        return SnapshotError(f"{repo} on {host} is gated: {_gate(repo, transport)}", "gated")
    if "disabled" in error.said.lower():
        return SnapshotError(f"{repo} was disabled on {host}, its files cannot be read: give two folders", "disabled")
    if "credentials" in error.said.lower() or (error.status == 401 and token and not error.code):
        return SnapshotError(
            f"{host} does not accept the token of this machine (HTTP {error.status}): {_LOGIN} again, or unset it",
            "private",
        )
    if error.code == "RepoNotFound" or error.status in (401, 404):
        hint = "the token's owner cannot see it" if token else f"it is private: then {_LOGIN}"
        return SnapshotError(f"{repo} was not found on {host}: the name is wrong, or {hint}", "not-found")
    if error.status == 403:
        return SnapshotError(f"{host} does not let this token read {repo} (HTTP 403)", "private")
    said = f": {error.said}" if error.said else ""
    return SnapshotError(f"{repo} @ {revision}: {error}{said}", "protocol")


def file_refused(error: TransportError, repo: str, transport: Transport) -> Message:
    """The clause for one file."""
    if error.kind != "refused":
        return said_by(error)
    if error.code == "GatedRepo":
        return Message("{} is gated: {}", repo, _gate(repo, transport))
    if error.code == "EntryNotFound" or error.status == 404:
        return Message("{} lists it and does not have it (HTTP {})", transport.host, error.status)
    return Message("{}: {}", error, error.said) if error.said else said_by(error)


def _gate(repo: str, transport: Transport) -> Message:
    if transport.has_token:
        return Message("accept its conditions at {}/{} with the account of your token", transport.host, repo)
    return Message("accept its conditions at {}/{}, then {}", transport.host, repo, _LOGIN)
