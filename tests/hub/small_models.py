"""Small models for the tests of this folder: headers, and a way to the loopback Hub that does not wait long."""

from __future__ import annotations

import json
import struct

import pytest
from loopback import Hub

from envdoctor.hub import Access, HubSnapshot, SnapshotError, Transport, open_hub

#: Bytes of a shard that exists as a header only.
SHARD = 5_000_000_000


def header(tensors: int = 40, name: str = "model.layers.{}.weight") -> bytes:
    """The header of a file with that many small tensors: 8 length bytes and JSON."""
    body = {name.format(i): {"dtype": "F16", "shape": [2], "data_offsets": [4 * i, 4 * i + 4]} for i in range(tensors)}
    raw = json.dumps(body).encode()
    return struct.pack("<Q", len(raw)) + raw


def transport(hub: Hub, **options: object) -> Transport:
    """A way to ``hub`` with the token of nobody, and short pauses between attempts."""
    given = {"endpoint": hub.endpoint, "token": False, "timeout": 20.0, "pause": 0.01, **options}
    return Transport(**given)  # type: ignore[arg-type]


def access(
    hub: Hub, *, environ: dict[str, str] | None = None, largest_header: int = 100_000_000, **options: object
) -> Access:
    """The same, as what a command may ask for; ``environ`` may name a place for envdoctor's own cache."""
    way = transport(hub, **options)
    return Access("", environ or {}, largest_header=largest_header, transport=way)


def weights(snapshot: HubSnapshot) -> list[str]:
    """The weight files of a snapshot."""
    return [path for path in snapshot.files if path.endswith(".safetensors")]


def error_of(hub: Hub, repo: str = "zai-org/tiny", revision: str | None = None, **options: object) -> SnapshotError:
    """The error of opening a snapshot, which is one line and shows no token."""
    with pytest.raises(SnapshotError) as caught:
        open_hub(repo, revision, access(hub, **options))
    text = str(caught.value)
    assert "\n" not in text and "Traceback" not in text and "hf_secret" not in text
    return caught.value
