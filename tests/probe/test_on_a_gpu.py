"""What only a card can show: the GPU code of the experiments on it. Runs with ``pytest -m gpu tests/probe``.

Every test is collected and imported where there is none, so that it cannot rot.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from planted import PROBES

from envdoctor.experiments import PAYLOAD, Outcome, Wishes, groups_of, judge, run_session
from envdoctor.system import Place

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def card_python(torch_python: str) -> str:
    """An interpreter whose torch sees a card."""
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    if subprocess.run([torch_python, "-c", code], check=False).returncode:
        pytest.skip("torch sees no GPU here")
    return torch_python


def ran(python: str, folder: Path, *names: str, suite: str = "quick") -> list[Outcome]:
    """The outcomes of these experiments on the card."""
    place = Place(python, os.environ, str(folder), str(folder), None, PAYLOAD)
    wishes = Wishes([PROBES[name] for name in names], True, suite, "cuda")
    session = run_session(PROBES["context"], wishes, place)
    assert session.unusable is None, session.unusable
    return list(session.outcomes)


def seen(outcomes: list[Outcome], probe: str) -> list[dict[str, Any]]:
    return [dict(one) for outcome in outcomes if outcome.job.probe == probe for one in outcome.observations]


def inside(python: str, code: str) -> Any:
    """What the code prints as JSON, with the payload's modules to import."""
    head = f"import json, sys; sys.path.insert(0, {str(PAYLOAD.parent)!r}); import torch\n"
    done = subprocess.run([python, "-c", head + code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_quick_suite_finds_nothing_on_a_healthy_card(card_python: str, tmp_path: Path) -> None:
    names = [name for name, probe in PROBES.items() if probe.suites.get("quick") and name != "context"]
    outcomes = ran(card_python, tmp_path, *names)
    assert [group for group in groups_of(outcomes) if group.wrong] == []
    assert {outcome.ending for outcome in outcomes} == {"ok"}
    (device,) = [one for one in seen(outcomes, "context") if one.get("case") == "device"]
    assert 50 < device["context_mib"] < 2000


@pytest.mark.parametrize("name", ["devices", "all-reduce"])
def test_a_healthy_card_agrees_with_itself_and_with_others(card_python: str, tmp_path: Path, name: str) -> None:
    outcomes = ran(card_python, tmp_path, name, suite="full")
    verdicts = [verdict.verdict for one in seen(outcomes, name) if (verdict := judge(one))]
    assert set(verdicts) <= {"pass", "skip"} and verdicts.count("pass") >= 3


def test_the_soak_keeps_a_card_busy_and_reads_its_clock(card_python: str, tmp_path: Path) -> None:
    words = seen(ran(card_python, tmp_path, "devices", suite="full"), "devices")
    (rounds,) = [int(one["case"].split()[0]) for one in words if "rounds of matmul" in str(one.get("case"))]
    assert rounds > 200  # five seconds
    (counters,) = [one for one in words if one.get("case") == "GPU 0" and one.get("kind") == "info"]
    assert counters["under_load"][0]["sm_mhz"] > 300
    (memory,) = [one for one in words if str(one.get("case")).startswith("memory on")]
    assert memory["equal"]


def test_the_card_suite_tries_everything_and_twice_with_the_same_verdict(card_python: str, tmp_path: Path) -> None:
    """What it could not try is said of shared, sliced and single cards; nothing of it is an error."""
    runs = [ran(card_python, tmp_path, "devices", "all-reduce", suite="card") for _ in range(2)]
    assert {outcome.ending for run in runs for outcome in run} == {"ok"}
    kinds = [{verdict.verdict for one in seen(run, "devices") if (verdict := judge(one))} for run in runs]
    assert kinds[0] == kinds[1] and kinds[0] <= {"pass", "skip", "warn", "partial"}
    words = seen(runs[0], "devices")
    tried = {str(one["case"]).split(" on ")[0] for one in words if one.get("equal")}
    assert {"matmul", "memory", "products of 8192 x 8192"} <= tried
    assert any("attention with heads of 128" in title for title in tried)
    (speeds,) = [one["measured"] for one in words if one.get("case") == "speeds"]
    for what, least in (("memory", 100), ("product", 10), ("sent", 0.5), ("received", 0.5)):
        assert all(least < value for value in speeds[what].values()), (what, speeds[what])


def test_what_is_not_supported_leaves_the_context_alive_and_an_assertion_does_not(card_python: str) -> None:
    code = """
from payload.probing.kit import failure
found = []
for work in (
    lambda: torch._scaled_mm(*(torch.ones(7, 7, device="cuda") for _ in range(2))),
    lambda: torch.zeros(3, device="cuda")[torch.tensor([9], device="cuda")].sum().item(),
):
    try:
        work()
    except Exception as error:
        found.append("sticky" in failure(error, "cuda"))
print(json.dumps(found))
"""
    assert inside(card_python, code) == [False, True]


def test_the_trainer_uses_one_card(card_python: str, tmp_path: Path) -> None:
    code = f"""
import transformers
from payload.probing.tiny_models import arguments
made = arguments(transformers.TrainingArguments, "cuda", output_dir={str(tmp_path)!r}, per_device_train_batch_size=2)
print(json.dumps([made.n_gpu, made.train_batch_size]))
"""
    assert inside(card_python, code) == [1, 2]


def test_the_driver_knows_the_device_that_torch_names(card_python: str) -> None:
    code = """
from payload.probing import nvml
uuid = nvml.identity(0, torch.cuda.get_device_properties(0))
torch.zeros(1, device="cuda")
print(json.dumps([nvml.used_mib([uuid])[0], nvml.counters([uuid])[0], nvml.version()]))
"""
    used, counters, version = inside(card_python, code)
    assert used > 0 and counters["sm_mhz"] > 0 and counters["pcie_lanes"] > 0 and version.count(".") >= 1
