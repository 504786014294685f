"""Where the tests of file formats find the model descriptions and the hostile files."""

from __future__ import annotations

import sys
from pathlib import Path

# header_true is a module of this folder; other folders' tests reach it the same way.
sys.path.insert(0, str(Path(__file__).parent))
