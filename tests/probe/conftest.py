"""One child for all that experiments are asked under planted faults: torch and transformers are imported once."""

from pathlib import Path
from typing import Any

import pytest
from planted import Wanted, planted
from sharing import once

from envdoctor.experiments import Outcome


@pytest.fixture(scope="session")
def all_outcomes(
    request: pytest.FixtureRequest, torch_python: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], list[Outcome]]:
    """The outcomes of every ``WANTED`` in the modules whose tests were chosen, by module and name.

    Where slow tests of a module were chosen, also of what its ``wanted_by_slow`` gives for an empty folder.
    """
    items: list[Any] = [item for item in request.session.items if "outcomes" in getattr(item, "fixturenames", ())]
    modules = {item.module.__name__: item.module for item in items}
    slow = {item.module.__name__ for item in items if item.get_closest_marker("slow")}

    def make(scratch: Path) -> dict[tuple[str, str], list[Outcome]]:
        wanted: Wanted[tuple[str, str]] = {}
        for name, module in sorted(modules.items()):
            (folder := scratch / name).mkdir()
            more = module.wanted_by_slow(folder) if name in slow and hasattr(module, "wanted_by_slow") else {}
            wanted |= {(name, key): jobs for key, jobs in {**getattr(module, "WANTED", {}), **more}.items()}
        return planted(torch_python, scratch, wanted, reached=True)

    return once(tmp_path_factory, "planted", make)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, all_outcomes: dict[tuple[str, str], list[Outcome]]
) -> dict[str, list[Outcome]]:
    """What came of the module's own ``WANTED``, by the same names."""
    return {name: some for (module, name), some in all_outcomes.items() if module == request.module.__name__}
