"""What came out alike is one result, with what its cases have in common and the right ones do not."""

from typing import Any

import pytest
from planted import results

from envdoctor.experiments import Job, Outcome, groups_of, in_use, session_of
from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.system import ENDINGS

HEALTHY = {"o": 0.8, "dq": 0.9, "dk": 1.0, "dv": 1.1}


CUDNN = "ScaledDotProductCudnnAttentionBackward0"
STAMP = {"probe": "attention", "device": "cuda", "dtype": "bf16", "backend": "cudnn"}


def case(length: int, *, lost: str | None = None, mask: str = "bool_left", ratio: float = 0.9, **more: Any) -> Any:
    return {
        **STAMP,
        "judge": "attention",
        "case": f"S{length} {mask}",
        "params": {"S": length, "L": length, "mask": mask, "stress": "shift-"},
        "ratio": {**HEALTHY, "dq": ratio} if lost is None else {"o": 0.8, "dk": 1.0, "dv": 1.1},
        "nonfinite": {lost: 5} if lost else {},
        "node": CUDNN,
        "lse": [-209.0, -180.5],
        **more,
    }


def outcome(*observations: Any, ending: str = "ok", detail: str = "", backend: str = "cudnn") -> Outcome:
    job = Job("attention", "cuda", "quick", dtype="bf16", backend=backend)
    return Outcome(job, tuple(observations), ending, detail, 1.0, 100.0)


def records(*outcomes: Outcome) -> Any:
    """The fact that rules read."""
    return next(fact.value for fact in results(*outcomes).facts if fact.key == "probe")


def test_a_kernel_that_loses_dq_at_a_tile_is_told_in_one_record() -> None:
    wrong = [case(length, lost="dq") for length in (64, 192, 704)]
    seen = outcome(*wrong, *[case(length) for length in (128, 261, 640)], case(64, mask="causal"))
    record, right = records(seen)
    words = {"verdict": "fail", "signature": "nan-gradient", "tile": "%128=64", "masks": ("bool_left",)}
    words |= {"lengths": ("64", "192", "704"), "tensors": "dq", "wrong": 3, "cases": 7, "ratio": 1.1, "node": CUDNN}
    words |= {"settles": "attention", "attention": "sdpa", "model": ABSENT}
    assert {key: record[key] for key in words} == words
    assert (right["verdict"], right["signature"]) == ("pass", "ok")
    assert groups_of([seen])[0].lse == (-209.0, -180.5)


@pytest.mark.parametrize(
    ("taken", "in_use"),
    [
        ("ScaledDotProductFlashAttentionBackward0", False),  # torch's own choice is another kernel
        (CUDNN, True),
        (None, True),  # the choice was not tried
    ],
)
def test_a_forced_kernel_counts_only_where_torch_takes_it_by_itself(taken: str | None, in_use: bool) -> None:
    own = outcome(case(64, backend="default", node=taken), backend="default")
    result = records(outcome(case(64, lost="dq")), *([own] if taken else []))
    assert {record["backend"]: record["in_use"] for record in result} == {
        "cudnn": in_use,
        **({"default": True} if taken else {}),
    }


@pytest.mark.parametrize(
    ("wrong", "right", "tile"),
    [
        ((64, 192), (192 + 128,), None),
        ((1, 3), (64, 128), "<16"),
        ((97, 129), (1, 128, 64), "%32=1"),
        ((97, 129), (33, 128), None),
        ((64,), (192, 33), None),
        ((64, 192), (), None),
        ((33, 64), (128, 192), None),
    ],
)
def test_a_tile_is_claimed_only_where_comparable_lengths_are_right(
    wrong: tuple[int, ...], right: tuple[int, ...], tile: str | None
) -> None:
    seen = [case(length, lost="dq") for length in wrong] + [case(length) for length in right]
    assert groups_of([outcome(*seen)])[0].tile == tile


def test_a_warning_and_a_failure_of_one_kind_are_one_result_with_the_worse_verdict() -> None:
    (group, _) = groups_of([outcome(case(64, ratio=5.0), case(65, ratio=95.0), case(66))])
    assert (group.verdict, group.signature, group.ratio) == ("fail", "inaccurate", 95.0)
    assert group.example == "S65 bool_left"


@pytest.mark.parametrize("ending", [name for name in ENDINGS if name != "ok"])
def test_every_bad_end_is_a_result_and_never_a_pass(ending: str) -> None:
    seen = outcome(case(64), ending=ending, detail="why")
    (dead, *_) = groups_of([seen])
    assert dead.example is None and dead.why == "why", "what is worst comes first"
    record, *_ = records(seen)
    assert record["verdict"] in ("error", "crash", "oom", "timeout", "killed", "garbage")
    assert (record["detail"], record["wrong"], record["cases"]) == ("why", 1, 1)


def test_padding_is_what_matters_when_equal_lengths_are_right() -> None:
    def batch(padding: str, together: float) -> Any:
        return {**STAMP, "judge": "batch", "params": {"padding": padding, "model": "glm"}, "e1": 0.1, "eN": together}

    fail, _ = groups_of([outcome(batch("left", 90.0), batch("none", 0.1))])
    assert (fail.signature, fail.batch, fail.model) == ("mask-differs", "padded", "glm")
    (both,) = groups_of([outcome(batch("left", 90.0), batch("none", 80.0))])
    assert (both.signature, both.batch) == ("batch-differs", "size")


def cpu(accelerators: int = 0) -> Outcome:
    environment = {"kind": "environment", "case": "build", "accelerators": accelerators}
    return Outcome(Job("context", "cpu", "quick"), (environment,), "ok")


GPU = Records(({"name": "H200"},))


@pytest.mark.parametrize(
    ("seen", "gpus", "others", "answer"),
    [
        (cpu(), Records(()), (), True),
        (cpu(), GPU, (), False),
        (cpu(1), Records(()), (), False),
        (cpu(), Records(()), ("rocm",), False),
        (cpu(), Records((), "half read"), (), None),
        (cpu(), Unknown("--no-gpu was given"), (), True),
        (cpu(), Unknown("--no-gpu was given"), ("nvidia",), None),
        (cpu(), Unknown("--no-gpu was given"), Unknown("not looked"), None),
        (cpu()._replace(begin={"device": "cuda"}), GPU, (), True),
    ],
)
def test_the_device_in_use_is_the_one_that_training_would_take(
    seen: Outcome, gpus: Any, others: Any, answer: bool | None
) -> None:
    result = in_use(session_of([seen]), gpus, others)
    assert isinstance(result, Unknown) if answer is None else result is answer


@pytest.mark.parametrize(
    ("earlier", "signature"), [("crash", "crashed-once"), ("timeout", "hung-once"), ("killed", "died-once")]
)
def test_what_was_done_only_at_the_second_try_is_a_warning_beside_its_results(earlier: str, signature: str) -> None:
    seen = outcome(case(64))._replace(earlier=earlier, earlier_detail="after 3 observations")
    warned, passed = groups_of([seen])
    assert (passed.verdict, passed.cases) == ("pass", 1)
    assert (warned.verdict, warned.signature, warned.cases) == ("warn", signature, 1)
    assert warned.why == f"at first {earlier}, in a process with other experiments: after 3 observations"
    assert [(record["verdict"], record["wrong"]) for record in records(seen)] == [("warn", 1), ("pass", 0)]


@pytest.mark.parametrize("length", ["²", "9" * 5000, "٣"])
def test_a_length_that_is_no_number_of_keys_is_a_word_and_an_odd_logsumexp_is_left_out(length: str) -> None:
    strange = {**case(1, lost="dq", lse=["nan", 2]), "params": {"S": length}}
    fail, _ = groups_of([outcome(case(64, lost="dq", lse=[10**400, 1]), strange, case(128))])
    assert (fail.lengths, fail.tile, fail.lse) == (("64", length), None, None)


def test_the_worst_case_of_each_length_is_a_point_of_a_plot() -> None:
    ratios = {length: dict.fromkeys(HEALTHY, ratio) for length, ratio in ((64, 0.9), (192, 9.5))}
    lost = case(64, ratio=1.0, nonfinite={"dq": 3}) | {"ratio": dict.fromkeys(HEALTHY, 1.0)}
    seen = [case(length) | {"ratio": ratio} for length, ratio in ratios.items()]
    right = case(192) | {"ratio": dict.fromkeys(HEALTHY, 1.2)}
    strange = case(64, params={"S": "6" * 5000})
    where = {"name": "attention", "device": "cuda", "dtype": "bf16", "backend": "cudnn"}
    assert results(outcome(*reversed(seen), lost, right, strange)).section["errors"] == [
        {**where, "length": 64, "cases": 2, "wrong": 1, "not_finite": True, "ratio": 1.0},
        {**where, "length": 192, "cases": 2, "wrong": 1, "not_finite": False, "ratio": 9.5},
    ]
