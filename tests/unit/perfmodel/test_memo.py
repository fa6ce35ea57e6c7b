"""Answers that are kept with a model's shapes."""

from llmservice_operator.perfmodel.memo import MOST_ANSWERS, remembered
from llmservice_operator.perfmodel.quantization import UNQUANTIZED, Quantization
from llmservice_operator.perfmodel.reading import read_model
from llmservice_operator.perfmodel.shapes import Architecture
from unit.perfmodel.samples import load_config

asked: list[int] = []


@remembered
def layers(model: Architecture, quantization: Quantization, *, ranks: int) -> int:
    asked.append(ranks)
    return model.num_layers // ranks


def model_of(name: str) -> Architecture:
    return read_model(load_config(name))[0]


def test_an_answer_is_found_once() -> None:
    asked.clear()
    model = model_of("Qwen--Qwen3-0.6B")

    assert [layers(model, UNQUANTIZED, ranks=2) for _ in range(3)] == [14, 14, 14]
    assert asked == [2]


def test_other_arguments_are_another_answer() -> None:
    model = model_of("Qwen--Qwen3-0.6B")

    assert [layers(model, UNQUANTIZED, ranks=ranks) for ranks in (1, 2, 4)] == [28, 14, 7]


def test_another_scheme_of_the_same_value_is_asked_anew() -> None:
    """Identity counts: equal ones need not be the same for long."""
    asked.clear()
    model = model_of("Qwen--Qwen3-8B")
    for _ in range(2):
        layers(model, Quantization(method="x", default=None), ranks=1)

    assert asked == [1, 1]


def test_answers_do_not_pile_up() -> None:
    model = model_of("Qwen--Qwen3-32B")
    for ranks in range(1, 3 * MOST_ANSWERS):
        layers(model, UNQUANTIZED, ranks=ranks)

    assert all(len(held) <= MOST_ANSWERS for held in vars(model).values() if isinstance(held, dict))


def test_the_same_text_is_the_same_model() -> None:
    first, second = (read_model(load_config("Qwen--Qwen3-8B"))[0] for _ in range(2))

    assert first is second


def test_what_is_no_json_is_read_too() -> None:
    config = load_config("Qwen--Qwen3-8B") | {"note": {"a set"}}

    assert read_model(config)[0].num_layers == 36
