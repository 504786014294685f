"""All sources of the machine together."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.facts import Registry, Unknown, parse_value, plain
from envdoctor.observe.gather import gather

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

FACTS = Path(__file__).parents[3] / "matrices" / "facts.toml"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.from_mapping(tomllib.loads(FACTS.read_text(encoding="utf-8")))


def test_every_fact_is_registered_and_of_its_type(machine, nvml_stub, registry):
    machine.environ.update(CUDA_HOME="/opt/cuda", OMP_NUM_THREADS="4")
    for fact in gather(machine.request(nvml_library=nvml_stub()), ["machine"]):
        spec = registry.find(fact.key)
        assert spec is not None, fact.key
        assert fact.source == "machine"
        if not isinstance(fact.value, Unknown):
            assert parse_value(spec, plain(fact.value)) == fact.value, fact


class _Broken(dict):
    def get(self, key, default=None):
        if key == "CUDA_HOME":
            raise RuntimeError("boom")
        return super().get(key, default)


def test_one_source_that_fails_leaves_the_others(machine):
    facts = {fact.key: fact.value for fact in gather(machine.request(environ=_Broken()), ["machine"])}
    assert facts["cuda.toolkit"] == Unknown("the observation cuda_toolkit failed: RuntimeError")
    assert facts["os.platform"] == "linux"
