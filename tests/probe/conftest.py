"""One child for all that experiments are asked under planted faults: torch and transformers are imported once."""

from __future__ import annotations

import pytest
from planted import planted
from sharing import once

from envdoctor.experiments import Outcome


@pytest.fixture(scope="session")
def all_outcomes(
    request: pytest.FixtureRequest, torch_python: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], list[Outcome]]:
    """The outcomes of every ``WANTED`` in the modules whose tests were chosen, by module and name."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    modules = {item.module.__name__: item.module for item in items if "outcomes" in item.fixturenames}
    wanted = {(module, name): jobs for module in sorted(modules) for name, jobs in modules[module].WANTED.items()}
    return once(tmp_path_factory, "planted", lambda scratch: planted(torch_python, scratch, wanted, reached=True))


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, all_outcomes: dict[tuple[str, str], list[Outcome]]
) -> dict[str, list[Outcome]]:
    """What came of the module's own ``WANTED``, by the same names."""
    return {name: some for (module, name), some in all_outcomes.items() if module == request.module.__name__}
