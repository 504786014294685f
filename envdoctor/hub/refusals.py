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
            "{} @ {} was not asked for on {}: offline mode is on (HF_HUB_OFFLINE or --offline); give two "
            "folders, or revisions that are in the local cache",
            repo,
            revision,
            host,
            kind="offline",
        )
    if error.kind == "network" or error.kind == "timeout":  # noqa: PLR1714 (a type checker knows what is left)
        return SnapshotError(
            "{} @ {}: {}; check the network, the proxy and HF_ENDPOINT, or give two folders",
            repo,
            revision,
            error,
            kind=error.kind,
        )
    if error.kind != "refused":
        return SnapshotError(
            "{} @ {}: {}", repo, revision, error, kind="usage" if error.kind == "usage" else "protocol"
        )
    token = transport.has_token
    if error.code == "RevisionNotFound":
        return SnapshotError(
            "{} has no revision {} on {}: give a branch, a tag, a commit, refs/pr/N or @date",
            repo,
            revision,
            host,
            kind="revision-not-found",
        )
    if error.code == "GatedRepo":
        return SnapshotError("{} on {} is gated: {}", repo, host, _gate(repo, transport), kind="gated")
    if "disabled" in error.said.lower():
        return SnapshotError(
            "{} was disabled on {}, its files cannot be read: give two folders", repo, host, kind="disabled"
        )
    if "credentials" in error.said.lower() or (error.status == 401 and token and not error.code):
        return SnapshotError(
            "{} does not accept the token of this machine (HTTP {}): {} again, or unset it",
            host,
            error.status,
            _LOGIN,
            kind="private",
        )
    if error.code == "RepoNotFound" or error.status in (401, 404):
        hint = "the token's owner cannot see it" if token else f"it is private: then {_LOGIN}"
        return SnapshotError("{} was not found on {}: the name is wrong, or {}", repo, host, hint, kind="not-found")
    if error.status == 403:
        return SnapshotError("{} does not let this token read {} (HTTP 403)", host, repo, kind="private")
    said = f": {error.said}" if error.said else ""
    return SnapshotError("{} @ {}: {}{}", repo, revision, error, said, kind="protocol")


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
