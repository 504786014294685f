"""What to give so that a finding rests on no guess."""

from known import given, judged
from observing import shipped

MATRIX = shipped()


def findings(facts: dict[str, object]):
    return {finding.id: finding for finding in judged(given(facts, MATRIX.registry), MATRIX).findings}


def test_what_is_known_settles_itself() -> None:
    known = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2}
    assert (
        findings({**known, "recipe.attn": "sdpa", "gpu": [{"cc": "9.0"}]})["torch-2-5-0-glm4-batch-nan"].settled_by
        == ()
    )


def test_every_doubt_of_a_finding_names_the_facts_that_end_it() -> None:
    doubtful = 0
    for rule in MATRIX.rules[::12]:
        for test in MATRIX.texts(rule)["test"]:
            if test["expect"] != "match" or test["complete"]:
                continue
            for finding in findings(test["facts"]).values():
                guessed = [taken.key for taken in finding.assumed if not taken.default]
                named = [text.partition("=")[0] for text in finding.settled_by]
                assert set(guessed) <= set(named)
                assert all(MATRIX.registry.find(key) is not None for key in named)
                doubtful += bool(named)
    assert doubtful > 0
