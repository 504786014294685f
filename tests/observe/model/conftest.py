"""Models on disk: plain folders and Hub caches."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from observing import values, write

from envdoctor.facts import Fact, Value
from envdoctor.observe import Request, resolve
from envdoctor.observe.gather import gather

COMMIT = "b098244a71fbe69ce149682d9072a7629f7e908c"
OTHER = "37fe0008cbb3a1b2c3d4e5f60718293a4b5c6d7e"

QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "vocab_size": 152064,
}


def encoded(content: object) -> bytes:
    """Return bytes and text as they are, and anything else as JSON."""
    return (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )


class Disk:
    """A working directory, and a home with a Hub cache."""

    def __init__(self, place: Path) -> None:
        self.cwd = place / "work"
        self.home = place / "home"
        self.cwd.mkdir()
        self.home.mkdir()
        self.environ = {"HOME": str(self.home)}

    @property
    def cache(self) -> Path:
        return self.home / ".cache" / "huggingface" / "hub"

    def folder(self, name: str = "model", files: dict[str, object] | None = None) -> Path:
        (self.cwd / name).mkdir(parents=True, exist_ok=True)
        given = {"config.json": QWEN} if files is None else files
        return write(self.cwd / name, {file: encoded(content) for file, content in given.items()})

    def cached(
        self, repo: str = "Qwen/Qwen2.5-7B-Instruct", commit: str = COMMIT, ref: str | None = "main", links: bool = True
    ) -> Path:
        place = self.cache / ("models--" + repo.replace("/", "--"))
        snapshot = place / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (place / "blobs").mkdir(exist_ok=True)
        blob = place / "blobs" / commit[:8] if links else snapshot / "config.json"
        blob.write_bytes(encoded(QWEN))
        if links:
            (snapshot / "config.json").symlink_to(Path("../../blobs") / blob.name)
        if ref:
            (place / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
            (place / "refs" / ref).write_text(commit, encoding="ascii")
        return snapshot

    def resolve(self, model: str, aliases: Mapping[str, str] | None = None) -> Any:
        return resolve(model, cwd=str(self.cwd), environ=self.environ, aliases=aliases)

    def facts(self, model: str) -> dict[str, Value]:
        return values(self.observe(model))

    def observe(self, model: str) -> list[Fact]:
        return list(gather(Request(environ={}, model=self.resolve(model)), ["model"]))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def config_facts(disk: Disk) -> Callable[[object], dict[str, Value]]:
    """The facts of a folder whose config.json has this content."""

    def facts(content: object) -> dict[str, Value]:
        disk.folder(files={"config.json": content})
        return disk.facts("./model")

    return facts
