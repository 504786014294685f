"""Environments that work: no error, and no warning but the true ones that each names."""

import pytest
from environments import Recording, build, recordings
from judging import judge, told

HEALTHY = recordings("healthy")


@pytest.mark.parametrize("recording", HEALTHY, ids=lambda recording: recording.name)
def test_a_healthy_environment_has_no_error(recording: Recording, tmp_path, store, matrix):
    """Alone, and on the machine and for the run that it was made for."""
    said = recording.said
    built = build(said, tmp_path, store)
    alone = judge(built, matrix, [text for text in said["machine"] if text.startswith("os.arch=")])
    assert told(alone, "error") == []
    assert set(told(alone, "warning")) <= set(said["warnings"])
    at_work = judge(built, matrix, [*said["machine"], *said["recipe"]])
    assert told(at_work, "error") == []
    assert told(at_work, "warning") == said["warnings"]
    assert at_work.rules_checked > alone.rules_checked > 90
    assert at_work.exit_code == 0


def test_every_minor_release_of_torch_from_2_4_on_is_among_them():
    torch = {stem.split("-")[1] for recording in HEALTHY for stem in recording.said["wheels"] if stem[:6] == "torch-"}
    assert {f"2.{minor}" for minor in range(4, 16)} <= {release.rpartition(".")[0] for release in torch}


def test_nothing_is_recorded_that_no_environment_uses(store):
    """Wheels that are in no healthy environment are there for the broken ones."""
    from specimens import SPECIMENS

    used = {stem for recording in HEALTHY for stem in recording.said["wheels"]}
    for specimen in SPECIMENS:
        used |= {store.find(wanted, specimen.python) for wanted in specimen.wheels()}
    from environments import RECORDED

    assert {path.name for path in (RECORDED / "wheels").iterdir()} - used == set()
