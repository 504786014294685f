"""The loopback Hub for the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

# The Hub and the small models are modules of this folder.
sys.path.insert(0, str(Path(__file__).parent))

from hub_fixtures import hub, packages_of  # noqa: F401 (fixtures)
