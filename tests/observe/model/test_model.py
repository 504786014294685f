"""All sources of the model together."""

import subprocess
import sys
from pathlib import Path

import pytest
from observing import assert_registered

from envdoctor.observe import observers

REPO = "Qwen/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize("model", ["./model", REPO, "some/thing"])
def test_every_fact_is_registered_and_of_its_type_and_observed_once(disk, model):
    disk.folder()
    disk.cached()
    facts = disk.observe(model)
    assert_registered(facts, "model")
    assert all(fact.origin for fact in facts)
    assert sorted(fact.key for fact in facts) == sorted(key for module in observers("model") for key in module.keys)


def test_nothing_is_written_and_no_client_is_imported(disk):
    disk.cached()
    script = (
        "import sys\n"
        "from envdoctor.observe import Request, resolve\n"
        "from envdoctor.observe.gather import gather\n"
        f"model = resolve({REPO!r}, cwd={str(disk.cwd)!r}, environ={disk.environ!r})\n"
        "gather(Request(environ={}, model=model), ['model'])\n"
        "print(sorted({'huggingface_hub', 'transformers', 'torch', 'socket', 'ast'} & set(sys.modules)))\n"
    )
    before = sorted(disk.home.rglob("*"))
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"
    assert sorted(disk.home.rglob("*")) == before
