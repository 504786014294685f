"""On PYTHONPATH, with ENVDOCTOR_TEST_FAULT=<name>: every Python that starts has that fault in its training loop."""

import os

if os.environ.get("ENVDOCTOR_TEST_FAULT"):
    import loop_faults

    loop_faults.FAULTS[os.environ["ENVDOCTOR_TEST_FAULT"]]()
