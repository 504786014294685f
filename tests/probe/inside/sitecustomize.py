"""On PYTHONPATH, with ENVDOCTOR_TEST_FAULT=<name>: every Python that starts has that fault."""

import os

if os.environ.get("ENVDOCTOR_TEST_FAULT"):
    import planting

    planting.plant(os.environ["ENVDOCTOR_TEST_FAULT"], setattr)
