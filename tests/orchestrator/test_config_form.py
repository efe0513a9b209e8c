"""The trigger form: Airflow accepts anything, so we do not."""

from __future__ import annotations

from typing import Any

import pytest

from scaleout.config.form import Form, Length
from scaleout.errors import ConfigError


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({"node": [1]}, "trigger form: unknown key 'node'; did you mean 'nodes'?"),
        ({"length": {"step": 6}}, "trigger form: unknown key 'length.step'; did you mean 'steps'?"),
        ({"length": {}}, "trigger form: length: give exactly one of steps, seconds, epochs"),
        (
            {"length": {"steps": 6, "seconds": 5}},
            "trigger form: length: give exactly one of steps, seconds, epochs",
        ),
        ({"length": {"steps": 0}}, "trigger form: length.steps: input should be greater than 0 (found 0)"),
        (
            {"length": {"seconds": float("inf")}},
            "trigger form: length.seconds: input should be a finite number (found inf)",
        ),
        ({"nodes": []}, "trigger form: nodes: list should have at least 1 item after validation, not 0 (found [])"),
        ({"nodes": [0]}, "trigger form: nodes.0: input should be greater than 0 (found 0)"),
        ({"nodes": [1, 2, 1]}, "trigger form: nodes: 1 is asked for more than once; `rounds` repeats trials"),
        ({"cache_modes": ["tepid"]}, "trigger form: cache_modes.0: input should be 'cold' or 'warm' (found 'tepid')"),
        ({"rounds": 0}, "trigger form: rounds: input should be greater than 0 (found 0)"),
        ({"seed": -1}, "trigger form: seed: input should be greater than or equal to 0 (found -1)"),
        (
            {"dataset_factor": 0},
            "trigger form: dataset_factor: 0 is neither a whole number from 1 on nor 'published'",
        ),
        (
            {"dataset_factor": "full"},
            "trigger form: dataset_factor: 'full' is neither a whole number from 1 on nor 'published'",
        ),
        (
            {"dataset_factor": 1.5},
            "trigger form: dataset_factor: 1.5 is neither a whole number from 1 on nor 'published'",
        ),
        ({"budget_h": 0}, "trigger form: budget_h: input should be greater than 0 (found 0)"),
        (
            {"cityscapes": "data"},
            "trigger form: cityscapes: string should match pattern '^(/|~/).+' (found 'data')",
        ),
    ],
)
def test_a_mistake_in_the_form_is_one_sentence(conf: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Form.of(conf)
    assert str(refused.value) == sentence


def test_two_mistakes_are_two_sentences() -> None:
    with pytest.raises(ConfigError) as refused:
        Form.of({"round": 1, "seed": "x"})
    assert len(str(refused.value).splitlines()) == 2


def test_an_empty_form_asks_for_the_demo() -> None:
    assert Form.of({}) == Form(preset="quick")


@pytest.mark.parametrize("length", [{"steps": 6}, {"seconds": 300.0}, {"epochs": 20}])
def test_a_length_is_one_of_three(length: dict[str, Any]) -> None:
    assert Length.model_validate(length).model_dump(exclude_none=True) == length


@pytest.mark.parametrize(("given", "taken"), [(3, 3), ("3", 3), ("327", 327), ("published", "published"), (None, None)])
def test_the_factor_of_the_data_set_may_come_as_the_text_that_the_ui_sends(given: Any, taken: Any) -> None:
    assert Form.of({"dataset_factor": given}).dataset_factor == taken
