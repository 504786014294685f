"""Build hook: compiles ``matrices/`` into the wheel, so that an installed envdoctor parses no TOML."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MatrixBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds ``envdoctor/_matrix``, compiled outside of the checkout: two builds at once do not meet."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected. An editable install keeps reading the TOML files."""
        if self.target_name != "wheel" or version == "editable":
            return
        self.compiled = tempfile.TemporaryDirectory()
        before = sys.path[:]
        sys.path[:0] = [self.root, str(Path(self.root) / "tools")]
        try:
            from compiling import compile_matrix

            compile_matrix(Path(self.root) / "matrices", Path(self.compiled.name) / "_matrix")
        finally:
            sys.path[:] = before
        build_data["force_include"][f"{self.compiled.name}/_matrix"] = "envdoctor/_matrix"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away what was compiled."""
        if hasattr(self, "compiled"):
            self.compiled.cleanup()
