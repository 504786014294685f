"""Faults in torch, transformers and peft are named by their cause; without a fault, nothing is."""

from pathlib import Path

import pytest
from planted import few, jobs, seen
from trials import SETS, suite_jobs, with_heads

from envdoctor.experiments import Job, Outcome

pytestmark = pytest.mark.torch

CAUSES = {name: set(rules) for one in ("trials", "strangers") for name, rules in SETS[one].steady.items()}

#: Run by default: faults of transformers, of torch's optimizers, of evaluation, of autocast.
FAST = ("scale + 2 % inside transformers", "KV cache disagrees with prefill", "loss in bf16 under autocast")
STEP = "AdamW without bias correction"
#: Only the full suite has a model with windows.
WINDOW = "sliding window one key too long"
RELOAD = "tied weights lost at load"
#: In torch's dispatcher; test_sets.py holds that such a fault is gone behind a check.
KERNEL = "bf16 attention loses columns of heads that are no multiple of 32"

WANTED = {
    **{name: (name, [*jobs("model-code"), *jobs("eval-mode")]) for name in FAST},
    STEP: (STEP, jobs("optimizer-step")),
    WINDOW: (WINDOW, jobs("model-code", "full")),
    KERNEL: (KERNEL, few("attention")),
    RELOAD: (RELOAD, [*jobs("save-load"), *jobs("model-code")]),
}
#: Two of the 39 against the whole suite, of a model's code and of an operation that most experiments call;
#: ``benchmarks/probe_faults.py`` plants all, which takes eight minutes of a processor.
WHOLE = ("v rolled by a head at D=128", "token ids cut to 16 bits")
#: These look at no model that is given.
OF_NO_MODEL = ("all-reduce", "arithmetic", "attention", "trainer-evaluation", "trainer-training")
WITH_A_MODEL = "healthy, with a model"


def wanted_by_slow(scratch: Path) -> dict[str, tuple[str | None, list[Job]]]:
    model = with_heads(scratch)
    wanted: dict[str, tuple[str | None, list[Job]]] = {
        f"{name}, whole": (name, suite_jobs(model=model if name.endswith("D=128") else None)) for name in WHOLE
    }
    return {**wanted, WITH_A_MODEL: (None, [job for job in suite_jobs(model=model) if job.probe not in OF_NO_MODEL])}


def test_a_fault_is_named_by_its_cause_and_by_nothing_else(outcomes: dict[str, list[Outcome]]) -> None:
    assert {name: seen(outcomes[name]).roots for name in WANTED} == {name: CAUSES[name] for name in WANTED}


@pytest.mark.slow
def test_the_whole_suite_names_faults_and_nothing_else(outcomes: dict[str, list[Outcome]]) -> None:
    """What it says without a fault and without a model is in ``test_models.py``."""
    assert {name: seen(outcomes[f"{name}, whole"]).roots for name in WHOLE} == {name: CAUSES[name] for name in WHOLE}
    assert seen(outcomes[WITH_A_MODEL]).roots == set()
