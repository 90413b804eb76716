from copy import deepcopy

import numpy as np
import pytest
import torch

from idml.training.averaging import Average


def drawn(generator: torch.Generator) -> list[torch.Tensor]:
    return [torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)]


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_the_average_equals_a_loop_and_forgets_early_steps_sooner(share):
    generator = torch.Generator().manual_seed(0)
    values = drawn(generator)
    average, expected = Average(values, share), [value.numpy().copy() for value in values]
    for step in range(30):
        for value, new in zip(values, drawn(generator), strict=True):
            value.copy_(new)
        average.update()
        kept = min(share, (1 + step) / (10 + step))
        expected = [kept * old + (1 - kept) * new.numpy() for old, new in zip(expected, values, strict=True)]
    average.adopt()
    for value, mean in zip(values, expected, strict=True):
        np.testing.assert_allclose(value.numpy(), mean, rtol=1e-5, atol=1e-6)


def test_tensors_hold_their_averages_for_a_while_and_then_their_own_values_again():
    values = drawn(torch.Generator().manual_seed(0))
    average = Average(values, 0.9)
    first = [value.clone() for value in values]
    for value in values:
        value.add_(1)
    own = [value.clone() for value in values]

    def fail_inside() -> None:
        with average.in_place():
            assert all(torch.equal(value, one) for value, one in zip(values, first, strict=True))
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert all(torch.equal(value, one) for value, one in zip(values, own, strict=True))


def test_a_saved_average_goes_on_where_it_was():
    generator = torch.Generator().manual_seed(0)
    values = drawn(generator)
    averages = [Average(values, 0.9)]
    for step in range(10):
        if step == 5:
            averages.append(Average(values, 0.9))
            averages[1].load_state_dict(deepcopy(averages[0].state_dict()))
        for value, new in zip(values, drawn(generator), strict=True):
            value.copy_(new)
        for average in averages:
            average.update()
    whole, resumed = (average.state_dict() for average in averages)
    assert resumed["steps"] == whole["steps"] == 10
    assert all(torch.equal(one, other) for one, other in zip(whole["averages"], resumed["averages"], strict=True))
