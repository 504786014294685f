"""The pieces of the attention probes: the float64 truth, inputs, masks, layouts, and kernels of other packages."""

import json
from typing import Any

import pytest
from planted import inside
from sharing import once

from envdoctor.experiments import find_probes, judge

CHECKS = (
    "truth_is_that_of_autograd",
    "an_offset_moves_every_logit",
    "memory_is_laid_out_as_named",
    "masks_hide_what_they_say",
    "no_generator_of_the_user_moves",
    "what_does_not_fit_the_dtype_is_not_judged",
    "refusals_are_told_from_errors",
    "a_setting_that_raises_is_not_offered_where_the_plain_one_works",
    "a_wrong_block_of_rows_counts_by_itself",
    "a_block_of_rows_without_a_key_and_one_with_one_key_is_no_alarm",
    "a_row_says_which_of_its_results_is_the_worst",
)


@pytest.fixture(scope="module")
def pieces(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    printed = once(tmp_path_factory, "pieces", lambda _: inside(torch_python, "pieces.py", *CHECKS))
    return json.loads(printed)


@pytest.mark.torch
@pytest.mark.parametrize("check", CHECKS)
def test_inside_torch(pieces: Any, check: str) -> None:
    assert pieces["checks"][check] is True


@pytest.mark.torch
@pytest.mark.parametrize("package", ["xformers", "flash_attn"])
def test_a_package_that_does_what_its_documentation_says_passes(pieces: Any, package: str) -> None:
    verdicts = [judge({"dtype": "fp32", **observation}) for observation in pieces[package]]
    assert len(verdicts) >= 35
    assert {verdict.verdict for verdict in verdicts if verdict} == {"pass"}, verdicts


@pytest.mark.torch
def test_a_package_that_forgets_where_samples_end_fails_on_unpadded_batches_alone(pieces: Any) -> None:
    failed = {
        observation["params"]["mask"]
        for observation in pieces["flash_attn without padding"]
        if (verdict := judge({"dtype": "fp32", **observation})) and verdict.verdict == "fail"
    }
    assert failed == {"pack_left", "pack_right", "pack_none"}


def test_packages_that_need_a_gpu_start_no_child_without_one() -> None:
    probes = find_probes()
    for name in ("flash-attn", "xformers"):
        assert probes[name].jobs("full", "cpu") == []
        assert len(probes[name].jobs("full", "cuda")) == 2
    backends = [job.backend for job in probes["attention"].jobs("full", "cpu")]
    assert "cudnn" not in backends
    assert "cudnn" in [job.backend for job in probes["attention"].jobs("full", "cuda")]
    assert [(job.dtype, job.backend) for job in probes["attention"].jobs("quick", "cpu")] == [("bf16", "default")]
