"""What fails runs again: a fault that comes and goes is called so, and no library is accused of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from planted import few, jobs, planted_session, seen

from envdoctor.experiments import Job, Outcome, cases_of, read_recording, write_head, write_outcome

#: One for each experiment that faults of inside/flaky_faults.py reach; ``benchmarks/probe_faults.py`` plants all ten.
#: They are tried as often as in a session, in the child of all faults.
FLAKY = {
    "an exponent bit of products": ("lora", "model-code"),
    **{"NaN in attention": ("attention",), "a row of the embedding": ("model-code",)},
    **{"a factor of rms_norm": ("rms-norm",), "a norm of gradients": ("grad-clip",)},
}
#: A fault that is always there has a cause, which is told.
STEADY = "layer norm weight gradient x 0.5"

pytestmark = pytest.mark.torch


def thrice(some: list[Job]) -> list[Job]:
    """As a session runs what fails: again in a new process, and once more in the same."""
    return [*some, *some, *(replace(job, begun=True) for job in some)]


WANTED = {STEADY: (STEADY, thrice(few("arithmetic")))}


def wanted_by_slow(_: Path) -> dict[str, tuple[str | None, list[Job]]]:
    return {name: (name, thrice([job for one in names for job in jobs(one)])) for name, names in FLAKY.items()}


def told_as_that(outcomes: list[Outcome]) -> None:
    (finding,) = seen(outcomes).told
    assert finding.id == "probe-unlike-answers" and "and again" in finding.message.en


def repeated(outcomes: list[Outcome]) -> list[Outcome]:
    """Those of :func:`thrice`, all but the first marked as a session marks them."""
    return [one._replace(again=place >= len(outcomes) // 3) for place, one in enumerate(outcomes)]


def test_a_fault_that_comes_and_goes_is_told_as_that_in_a_session(torch_python: str, tmp_path: Path) -> None:
    """That numbers of the environment are bf16 unless said otherwise changes no experiment."""
    asked = ("arithmetic", "tf32", "optimizer-step")
    faults = "a sign of batched products; default-dtype"
    outcomes = planted_session(torch_python, tmp_path, faults, *asked, reached=True)
    told_as_that(outcomes)
    again = {name: [outcome.again for outcome in outcomes if outcome.job.probe == name] for name in asked}
    assert again == {"arithmetic": [False, True, True], "tf32": [False], "optimizer-step": [False]}
    # What ran again is evidence, no result of its own.
    assert len(cases_of(outcomes)) == len(cases_of([one for one in outcomes if not one.again]))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FLAKY)
def test_so_it_is_in_other_experiments(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    told_as_that(repeated(outcomes[fault]))


def test_a_fault_that_is_always_there_has_its_cause(outcomes: dict[str, list[Outcome]]) -> None:
    assert seen(repeated(outcomes[STEADY])).roots == {"probe-operation-inaccurate"}


def answers(*given: float | None) -> list[Outcome]:
    """One case measured so often, None where it was right."""
    job = Job("lora", "cpu", "quick")
    told = [{"judge": "change", "signature": "lora-differs", "limit": 1e-3, "case": "merged"} for _ in given]
    for case, value in zip(told, given, strict=True):
        case["relative"] = 1e-7 if value is None else value
    return [Outcome(job, ({"probe": "lora", **case},), "ok", again=place > 0) for place, case in enumerate(told)]


@pytest.mark.parametrize(
    ("given", "signature"),
    [
        ((0.2, 0.2, 0.2), "lora-differs"),
        ((0.2, 0.2001, 0.2), "lora-differs"),  # the last digits, by atomics
        ((0.2, None, None), "unlike-answers"),
        ((0.2, 0.2, None), "unlike-answers"),
        ((0.2, 0.2, 0.9), "unlike-answers"),
        ((None, None, 0.2), "unlike-answers"),  # beside another case of its job that failed
        ((None, None, None), "ok"),
        ((0.2,), "lora-differs"),
    ],
)
def test_two_answers_to_one_question_are_a_verdict(given: tuple[float | None, ...], signature: str) -> None:
    (case,) = cases_of(answers(*given))
    assert case.verdict.signature == signature
    assert ("suspect hardware" in case.verdict.why) == (signature == "unlike-answers")


@pytest.mark.parametrize(("raises", "signature"), [((True, False), "error"), ((False, True), "lora-differs")])
def test_an_exception_is_no_second_answer(raises: tuple[bool, bool], signature: str) -> None:
    """accelerate before 0.34 raises where no Accelerator was made, and not where another experiment made one before."""
    outcomes = [
        one._replace(observations=tuple({**seen, "error": "ValueError"} for seen in one.observations)) if first else one
        for one, first in zip(answers(0.2, 0.2), raises, strict=True)
    ]
    (case,) = cases_of(outcomes)
    assert case.verdict.signature == signature
    assert "suspect hardware" not in case.verdict.why


def test_what_is_repeated_is_read_back_from_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("w") as file:
        write_head(file, {})
        for outcome in answers(0.2, None):
            write_outcome(file, outcome)
    (case,) = cases_of(read_recording(path).outcomes)
    assert case.verdict.signature == "unlike-answers"
