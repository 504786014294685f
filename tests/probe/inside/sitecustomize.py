"""On PYTHONPATH, with ENVDOCTOR_TEST_FAULT=<name>: every torch that this interpreter starts with has that fault."""

import os

if os.environ.get("ENVDOCTOR_TEST_FAULT"):
    import faults

    faults.install(os.environ["ENVDOCTOR_TEST_FAULT"])
