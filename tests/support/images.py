"""Images in one file, as ``docker save`` and OCI tools write them, from entries that a test lists."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SITE = "usr/local/lib/python3.11/site-packages"
#: A path's content: bytes of a file, None of a folder, ("link" or "same", PATH) of a symbolic or a hard link.
Entry = tuple[str, bytes | tuple[str, str] | None]


def layer(*entries: Entry) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type = tarfile.SYMTYPE if content[0] == "link" else tarfile.LNKTYPE
                info.linkname = content[1]
            elif content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content if isinstance(content, bytes) else b""))
    return written.getvalue()


def python() -> list[Entry]:
    return [
        ("usr/local/lib/python3.11/os.py", b""),
        ("usr/local/include/python3.11/patchlevel.h", b'#define PY_VERSION "3.11.9"\n'),
    ]


def package(name: str, version: str, *requires: str, site: str = SITE) -> list[Entry]:
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    return [(f"{site}/{name}-{version}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, ""]).encode())]


def docker_archive(path: Path, layers: Sequence[bytes], config: Mapping[str, Any] | None = None) -> None:
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    described = [{"Config": "config.json", "RepoTags": ["train:1"], "Layers": names}]
    _archive(path, {**dict(zip(names, layers, strict=True)), "config.json": config or {}, "manifest.json": described})


def oci_archive(path: Path, layers: Sequence[bytes], config: Mapping[str, Any] | None = None) -> None:
    members: dict[str, Any] = {}

    def blob(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        members[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    manifest = {
        "config": blob(json.dumps(config or {}).encode()),
        "layers": [blob(gzip.compress(one)) for one in layers],
    }
    members["index.json"] = {"manifests": [blob(json.dumps(manifest).encode())]}
    _archive(path, members)


def _archive(path: Path, members: Mapping[str, Any]) -> None:
    contents = [(name, one if isinstance(one, bytes) else json.dumps(one).encode()) for name, one in members.items()]
    path.write_bytes(layer(*contents))
