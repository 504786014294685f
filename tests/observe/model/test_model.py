"""All sources of the model together."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from envdoctor.facts import Registry, Unknown, parse_value, plain

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

FACTS = Path(__file__).parents[3] / "matrices" / "facts.toml"
REPO = "Qwen/Qwen2.5-7B-Instruct"


def keys_of(module: str) -> tuple[str, ...]:
    return importlib.import_module(f"envdoctor.observe.model.{module}").KEYS


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.from_mapping(tomllib.loads(FACTS.read_text(encoding="utf-8")))


@pytest.mark.parametrize("model", ["./model", REPO, "some/thing"])
def test_every_fact_is_registered_and_of_its_type(disk, registry, model):
    disk.folder()
    disk.cached()
    for fact in disk.observe(model):
        spec = registry.find(fact.key)
        assert spec is not None, fact.key
        assert fact.source == "model"
        assert fact.origin
        if not isinstance(fact.value, Unknown):
            assert parse_value(spec, plain(fact.value)) == fact.value, fact


@pytest.mark.parametrize("model", ["./model", REPO, "some/thing"])
def test_every_registered_fact_of_the_model_is_observed_once(disk, registry, model):
    disk.folder()
    disk.cached()
    keys = sorted(fact.key for fact in disk.observe(model))
    modules = ("config", "named", "registered", "remote_code", "tokenizer_config", "weights")
    assert keys == sorted(key for module in modules for key in keys_of(module))


def test_nothing_is_written_and_no_client_is_imported(disk):
    import subprocess
    import sys

    disk.cached()
    script = (
        "import sys\n"
        "from envdoctor.observe.gather import gather\n"
        "from envdoctor.observe.model.reading.source import resolve\n"
        "from envdoctor.observe.request import Request\n"
        f"model = resolve({REPO!r}, cwd={str(disk.cwd)!r}, environ={disk.environ!r})\n"
        "gather(Request(environ={}, model=model), ['model'])\n"
        "print(sorted({'huggingface_hub', 'transformers', 'torch', 'socket', 'ast'} & set(sys.modules)))\n"
    )
    before = sorted(disk.home.rglob("*"))
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"
    assert sorted(disk.home.rglob("*")) == before
