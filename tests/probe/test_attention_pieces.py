"""The pieces of the attention probes: the float64 truth, inputs, masks, layouts, and kernels of other packages."""

import json
from typing import Any

import pytest
from planted import checks_of, inside
from sharing import once

from envdoctor.experiments import find_probes, judge

CHECKS = checks_of("pieces.py")


@pytest.fixture(scope="module")
def pieces(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    printed = once(tmp_path_factory, "pieces", lambda _: inside(torch_python, "pieces.py", *CHECKS))
    return json.loads(printed)


@pytest.mark.torch
@pytest.mark.parametrize("check", CHECKS)
def test_inside_torch(pieces: Any, check: str) -> None:
    assert pieces["checks"][check] is True


@pytest.mark.torch
def test_a_package_that_does_what_its_documentation_says_passes(pieces: Any) -> None:
    verdicts = [judge({"dtype": "fp32", **observation}) for observation in pieces["flash_attn"]]
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


def test_a_package_that_needs_a_gpu_starts_no_child_without_one() -> None:
    probes = find_probes()
    assert probes["flash-attn"].jobs("full", "cpu") == []
    assert len(probes["flash-attn"].jobs("full", "cuda")) == 2
    backends = [job.backend for job in probes["attention"].jobs("full", "cpu")]
    assert "cudnn" not in backends
    assert "cudnn" in [job.backend for job in probes["attention"].jobs("full", "cuda")]
    assert [(job.dtype, job.backend) for job in probes["attention"].jobs("quick", "cpu")] == [("bf16", "default")]
