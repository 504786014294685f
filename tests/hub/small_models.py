"""Small models for the tests of this folder: headers, and a way to the loopback Hub that does not wait long."""

import json
import struct

import pytest
from loopback import Hub

from envdoctor.revision import Access, HubSnapshot, SnapshotError, Transport, Unread, open_hub

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


def access(hub: Hub, *, largest_header: int = 100_000_000, **options: object) -> Access:
    """The same, as what a command may ask for."""
    return Access("", {}, largest_header=largest_header, transport=transport(hub, **options))


def opened(hub: Hub, revision: str | None = None, repo: str = "zai-org/tiny", **options: object) -> HubSnapshot:
    """A revision, asked for with the options of :func:`access`."""
    return open_hub(repo, revision, access(hub, **options))  # type: ignore[arg-type]


def weights(snapshot: HubSnapshot) -> list[str]:
    """The weight files of a snapshot."""
    return [path for path in snapshot.files if path.endswith(".safetensors")]


def why(part: object) -> str:
    """Why a part is unread."""
    assert isinstance(part, Unread), part
    return part.reason


def refused(
    hub: Hub, kind: str, *words: str, repo: str = "zai-org/tiny", revision: str | None = None, **options: object
):
    """Hold that opening is an error of that kind (of one of several), with these words: a line that shows no token."""
    with pytest.raises(SnapshotError) as caught:
        opened(hub, revision, repo, **options)
    text = str(caught.value)
    assert caught.value.kind in kind.split(), text
    assert [word for word in words if word not in text] == [], text
    assert "\n" not in text and "Traceback" not in text and "hf_secret" not in text
