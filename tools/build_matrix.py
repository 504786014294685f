"""Build hook: compiles ``matrices/`` into the wheel, so that an installed envdoctor parses no TOML."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MatrixBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes ``envdoctor/_matrix`` for the time of the build; a checkout reads the TOML files themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected. An editable install keeps reading the TOML files."""
        target = self._target()
        shutil.rmtree(target, ignore_errors=True)
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from envdoctor.matrix import compile_matrix

            compile_matrix(Path(self.root) / "matrices", target)
        finally:
            sys.path.remove(self.root)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave the checkout as it was."""
        shutil.rmtree(self._target(), ignore_errors=True)

    def _target(self) -> Path:
        return Path(self.root) / "envdoctor" / "_matrix"
