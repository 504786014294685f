"""Published inventories of environments that worked: no error but those that were looked at one by one and are true."""

import json
from pathlib import Path

import pytest

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.judge import Policy
from envdoctor.matrix import Matrix, load_matrix

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "inventories"
INVENTORIES = sorted(path.stem for path in FOLDER.glob("*.json"))
#: Parts that these images carry and do not use; fixtures/inventories/README.md says how each was looked at.
_FSSPEC = {"datasets-before-2-14-6-fails-with-fsspec-2023-10"}
_ACCELERATE = {"accelerate-too-old-for-transformers-trainer"}
_DEEPSPEED = {"deepspeed-import-fails-on-torch-2-4"}
_TORCHVISION = {"torchvision-of-another-torch-release"}
_BUILT = {"extension-named-for-another-torch-release"}
TRUE = {
    "helm-2026-06": _ACCELERATE,
    "infinity-0.0.32": _FSSPEC,
    "infinity-0.0.55": _FSSPEC,
    "infinity-0.0.77": _FSSPEC,
    **dict.fromkeys((f"llamafactory-recommended-0.{one}" for one in ("7.1", "8.3", "9.1")), _BUILT),
    "llamafactory-recommended-0.9.2": _DEEPSPEED | _BUILT,
    "llamafactory-recommended-0.9.3": _DEEPSPEED | _TORCHVISION | _BUILT,
    "llamafactory-recommended-0.9.4": _DEEPSPEED | _TORCHVISION | _BUILT,
    "nemo-rl-0.7.0-automodel": _BUILT,
    "lorax-0.12.1": _FSSPEC | _ACCELERATE,
    **dict.fromkeys(
        (f"vllm-test-{day}" for day in ("2025-07", "2025-09", "2025-10", "2025-12", "2026-02")), _ACCELERATE
    ),
    "sagemaker-distribution-4.0.0": {"datasets-before-2-14-7-fails-with-pyarrow-21"},
}


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix()


def test_there_are_enough_of_them_and_their_addresses_are_given() -> None:
    assert len(INVENTORIES) >= 200
    origins = [json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["origins"] for name in INVENTORIES]
    assert [of for of in origins if not of["pkg.torch"].startswith("https://")] == []


@pytest.mark.parametrize("name", INVENTORIES)
def test_a_published_inventory_has_no_error_that_is_not_true(name: str, matrix: Matrix) -> None:
    report = check(Sources(facts=str(FOLDER / f"{name}.json")), policy=Policy(), matrix=matrix)
    errors = {finding.id for finding in report.findings if finding.severity == "error"}
    assert errors == TRUE.get(name, set())
