"""Models on disk: plain folders and Hub caches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from envdoctor.facts import Fact, Value
from envdoctor.observe import Request, resolve
from envdoctor.observe.gather import gather
from envdoctor.observe.model.reading.source import ModelSource

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
        folder = self.cwd / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in (files if files is not None else {"config.json": QWEN}).items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / file).write_text(text, encoding="utf-8")
        return folder

    def cached(
        self,
        repo: str = "Qwen/Qwen2.5-7B-Instruct",
        commit: str = COMMIT,
        ref: str | None = "main",
        links: bool = True,
        cache: Path | None = None,
        files: dict[str, object] | None = None,
    ) -> Path:
        place = (cache or self.cache) / ("models--" + repo.replace("/", "--"))
        snapshot = place / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (place / "blobs").mkdir(exist_ok=True)
        for number, (name, content) in enumerate((files or {"config.json": QWEN}).items()):
            text = content if isinstance(content, str) else json.dumps(content)
            if links:
                blob = place / "blobs" / f"{commit[:8]}{number}"
                blob.write_text(text, encoding="utf-8")
                (snapshot / name).symlink_to(Path("../../blobs") / blob.name)
            else:
                (snapshot / name).write_text(text, encoding="utf-8")
        if ref:
            (place / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
            (place / "refs" / ref).write_text(commit, encoding="ascii")
        return snapshot

    def resolve(self, model: str, **aliases: str) -> ModelSource:
        names = {old.replace("_", "-"): new for old, new in aliases.items()}
        return resolve(model, cwd=str(self.cwd), environ=self.environ, aliases=names)

    def facts(self, model: str) -> dict[str, Value]:
        return {fact.key: fact.value for fact in self.observe(model)}

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
