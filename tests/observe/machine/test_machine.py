"""All sources of the machine together."""

from observing import assert_registered

from envdoctor.facts import Unknown
from envdoctor.observe.gather import gather


def test_every_fact_is_registered_and_of_its_type(machine, nvml_stub):
    machine.environ.update(CUDA_HOME="/opt/cuda", OMP_NUM_THREADS="4")
    assert_registered(gather(machine.request(nvml_library=nvml_stub()), ["machine"]), "machine")


class _Broken(dict):
    def get(self, key, default=None):
        if key == "CUDA_HOME":
            raise RuntimeError("boom")
        return super().get(key, default)


def test_one_source_that_fails_leaves_the_others(machine):
    facts = machine.facts(environ=_Broken())
    assert facts["cuda.toolkit"] == Unknown("the observation cuda_toolkit failed: RuntimeError")
    assert facts["os.platform"] == "linux"
