"""Every kind of tensor and of operator: none breaks a training, and what is shown of each is right."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils._pytree import tree_map

from tests.agents.pytorch.captured_operators import captured, operators

if TYPE_CHECKING:
    from collections.abc import Callable

# PyTorch warns of what it has not finished itself.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

MATRIX = torch.tensor([[1.0, -2.0], [0.0, 4.0]])


class Doubled(torch.Tensor):
    """A tensor that is made of another one and computes with it, as distributed tensors do."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Doubled:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def inner(value: Any) -> Any:
            return value.inner if isinstance(value, cls) else value

        def outer(value: Any) -> Any:
            return cls(value) if isinstance(value, torch.Tensor) else value

        return tree_map(outer, func(*tree_map(inner, args), **tree_map(inner, kwargs or {})))


def in_place() -> torch.Tensor:
    made = MATRIX.clone()
    made += 1
    return made.mul_(2).relu_()


def in_place_on_a_view() -> torch.Tensor:
    made = MATRIX.clone()
    made[0].mul_(3)
    made.t()[1].zero_()
    return made + 0


def views() -> torch.Tensor:
    return MATRIX.t().unsqueeze(0).expand(3, 2, 2).reshape(-1)[1:].as_strided((2, 2), (1, 1)).contiguous()


def tuples() -> list[torch.Tensor]:
    values, indices = MATRIX.sort(dim=1)
    return [values, indices, *MATRIX.split(1), *torch.unbind(MATRIX), *MATRIX.max(dim=0)]


def nothing_returned() -> torch.Tensor:
    tensors = [MATRIX.clone(), MATRIX.clone()]
    torch._foreach_add_(tensors, 1.0)
    return torch.stack(tensors)


def optional_results() -> torch.Tensor:
    inputs = torch.ones(2, 3, 4, requires_grad=True)
    (F.batch_norm(inputs, torch.zeros(3), torch.ones(3), training=True) * 2).square().sum().backward()
    gradient = inputs.grad
    assert gradient is not None
    return gradient


def written_elsewhere() -> torch.Tensor:
    made = torch.empty(2, 2)
    torch.add(MATRIX, 1, out=made)
    return made


def sparse() -> torch.Tensor:
    weight = torch.ones(4, 2, requires_grad=True)
    F.embedding(torch.tensor([1, 3, 1]), weight, sparse=True).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_sparse
    return weight.grad.to_dense() + MATRIX.to_sparse().to_dense().repeat(2, 1) + MATRIX.to_sparse_csr().to_dense().sum()


def complex_numbers() -> torch.Tensor:
    spectrum = torch.fft.fft(MATRIX)
    return torch.view_as_real(spectrum.conj() * spectrum.imag) + torch.fft.ifft(spectrum).real.sum()


def meta() -> torch.Tensor:
    return torch.ones(tuple((torch.empty(3, 4, device="meta") @ torch.empty(4, 2, device="meta")).shape))


def nested() -> torch.Tensor:
    made = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    jagged = torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged)
    return (made * 2).to_padded_tensor(0.0).sum() + (jagged + 1).values().sum()


def quantised() -> torch.Tensor:
    made = torch.quantize_per_tensor(MATRIX, scale=0.5, zero_point=3, dtype=torch.qint8)
    return torch.relu(made).dequantize()


def subclasses() -> torch.Tensor:
    made = Doubled(MATRIX) @ Doubled(MATRIX) + 1
    assert isinstance(made, Doubled)
    return made.inner


def without_gradients() -> torch.Tensor:
    with torch.no_grad():
        return nn.Linear(2, 2, bias=False).weight * 0 + MATRIX


def inference() -> torch.Tensor:
    with torch.inference_mode():
        made = MATRIX * 2
        made.add_(1)
        made[0].zero_()
        total = made.sum(dim=0)
    return total.clone()


def half_precision() -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        made = MATRIX @ MATRIX
    return made.float() + MATRIX.half().exp().float() + MATRIX.double().sin().float()


def channels_last() -> torch.Tensor:
    images = torch.arange(48.0).reshape(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    return F.avg_pool2d(F.relu(images - 5), 2)


def truth_and_nothing() -> torch.Tensor:
    empty = torch.zeros(0, 3)
    return (MATRIX > 0).logical_not().float() + empty.sum() + torch.cat([empty, torch.ones(1, 3)]).sum()


def random_numbers() -> torch.Tensor:
    torch.manual_seed(5)
    return F.dropout(torch.rand(4), 0.5) + torch.randn(4) + torch.empty(4).uniform_()


def transforms() -> torch.Tensor:
    def energy(value: torch.Tensor) -> torch.Tensor:
        return value.sin().square().sum()

    mapped = torch.func.vmap(torch.func.grad(energy))(MATRIX)
    _, tangent = torch.func.jvp(energy, (MATRIX,), (MATRIX,))
    return mapped + tangent + torch.func.hessian(energy)(MATRIX[0]).sum()


def functional_call() -> torch.Tensor:
    module = nn.Linear(2, 2)
    return torch.func.functional_call(module, {"weight": MATRIX, "bias": torch.zeros(2)}, (MATRIX,))


def recurrent() -> torch.Tensor:
    torch.manual_seed(0)
    layer = nn.LSTM(2, 3, num_layers=2, batch_first=True)
    outputs, (hidden, _) = layer(MATRIX.unsqueeze(0))
    return outputs.sum() + hidden.sum()


def attention() -> torch.Tensor:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
    return layer(torch.ones(2, 3, 4)).sum()


def packed() -> torch.Tensor:
    rows = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    return nn.utils.rnn.pad_packed_sequence(rows)[0]


def indexed() -> torch.Tensor:
    made = torch.zeros(4, 2)
    made[torch.tensor([0, 2])] = MATRIX
    made.index_add_(0, torch.tensor([1]), torch.ones(1, 2))
    return made.masked_fill(made > 3, -1)


def control_flow() -> torch.Tensor:
    found: torch.Tensor = torch.nonzero(MATRIX > 0).float()
    return torch.where(MATRIX > 0, MATRIX, MATRIX.exp()).sum() + found


KINDS: list[Callable[[], Any]] = [
    *(in_place, in_place_on_a_view, views, tuples, nothing_returned, optional_results, written_elsewhere, sparse),
    *(complex_numbers, meta, nested, quantised, subclasses, without_gradients, inference, half_precision),
    *(channels_last, truth_and_nothing, random_numbers, transforms, functional_call, recurrent, attention, packed),
    *(indexed, control_flow),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_breaks_and_nothing_is_another_than_unseen(
    kind: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = kind()
    with captured() as seen:
        results, traces = [], []
        for _ in range(3):
            results.append(kind())
            traces.append(seen.end())
    for result in results:
        for one, another in zip(_listed(expected), _listed(result), strict=True):
            assert torch.equal(one, another)
    assert traces[1] is traces[2]
    assert traces[0].operators
    assert "cannot be followed" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_statistics_are_those_of_the_value_that_is_shown(kind: Callable[[], Any]) -> None:
    with captured() as seen:
        _held = kind()
        trace = seen.capture.end_step()
        checked = 0
        for name, node in operators(trace).items():
            for slot in range(len(node.outputs)):
                value, statistics = seen.value(name, slot), seen.statistics(name, slot)
                if value is None or statistics is None or not _is_plain(value):
                    continue
                checked += 1
                elements = value.detach().double().numpy()
                assert statistics.count == elements.size
                if elements.size and np.isfinite(elements).all():
                    assert (statistics.min, statistics.max) == (elements.min(), elements.max()), name
    assert checked or kind in (meta, nested, complex_numbers)


def test_the_value_before_an_in_place_operator_is_not_shown_as_what_it_was() -> None:
    with captured() as seen:
        made = MATRIX.clone()
        made.mul_(2)
        seen.capture.end_step()
        assert seen.value("Default/clone-op0") is None
        assert torch.equal(seen.value("Default/mul_-op0"), MATRIX * 2)
        assert seen.statistics("Default/clone-op0").max == 4
        assert seen.statistics("Default/mul_-op0").max == 8


def test_what_reads_after_a_write_reads_from_who_wrote() -> None:
    with captured() as seen:
        made = MATRIX.clone()
        made[0].mul_(2)
        made.exp()
        nodes = operators(seen.capture.end_step())
    assert nodes["Default/mul_-op0"].inputs == (("Default/select-op0", 0),)
    assert nodes["Default/exp-op0"].inputs == (("Default/mul_-op0", 0),)


def test_running_means_and_fused_updates_are_writes_that_no_version_tells() -> None:
    layer = nn.BatchNorm1d(2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    with captured(layer) as seen:
        layer(MATRIX).square().sum().backward()
        optimizer.step()
        nodes = operators(seen.capture.end_step())
        mean = seen.value("Default/native_batch_norm-op0", 3)
        assert torch.equal(mean, layer.running_mean)
    (update,) = [node for name, node in nodes.items() if name.startswith("Optimizer/AdamW/_fused")]
    assert {"weight", "bias"} <= {source[0] for source in update.inputs if source}
    # Two weights with two moments and a number of steps each; the gradients are written to as well.
    assert len(update.outputs) >= 8


def test_what_was_not_written_yet_is_not_looked_at() -> None:
    with captured() as seen:
        torch.empty(100).fill_(1.0)
        copy.deepcopy(torch.ones(5))
        seen.capture.end_step()
        assert seen.statistics("Default/empty-op0") is None
        assert seen.statistics("Default/set_-op0") is None
        assert seen.statistics("Default/fill_-op0").max == 1


def test_a_view_of_what_was_not_written_yet_is_not_looked_at_until_somebody_has_written_to_its_memory() -> None:
    with captured() as seen:
        made = torch.empty(4)
        half = made[:2]
        half.copy_(torch.ones(2))
        made[:2].exp()
        seen.capture.end_step()
        assert seen.statistics("Default/slice-op0") is None
        assert seen.statistics("Default/copy_-op0").max == 1
        assert seen.statistics("Default/slice-op1").max == 1


def test_an_operator_of_another_library_may_write_without_declaring_it() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with captured() as seen:
            gathered = torch.empty(4)
            distributed.all_gather([gathered], torch.ones(4))
            gathered[:2].exp()
            seen.capture.end_step()
            assert seen.statistics("Default/slice-op0").max == 1
    finally:
        distributed.destroy_process_group()


def test_views_of_memory_that_was_written_to_have_rows_of_their_own_whoever_wrote() -> None:
    with torch.library._scoped_library("tensight_test", "FRAGMENT") as library:
        library.define("fill_undeclared(Tensor given) -> Tensor")
        library.define("fill_in_silence(Tensor given) -> ()")
        library.impl("fill_undeclared", lambda given: given.detach().fill_(5).sum(), "CompositeExplicitAutograd")
        library.impl("fill_in_silence", lambda given: given.numpy().fill(6), "CPU")

        def run() -> None:
            made = torch.ones(2, 3)
            made.view(6).view(3, 2).t().unsqueeze(0)
            made.add_(1)
            made.view(6)
            # It counts its versions for itself.
            made.data.add_(1)
            made.view(6)
            torch.ops.tensight_test.fill_undeclared(made)
            made.view(6)
            torch.ops.tensight_test.fill_in_silence(made)
            made.view(6)

        with captured() as seen:
            for _ in range(2):
                seen.step(run)
                names = [f"Default/{name}" for name in ("view-op0", "view-op1", "t-op0", "unsqueeze-op0")]
                assert [seen.statistics(name).shape for name in names] == [(6,), (3, 2), (2, 3), (1, 2, 3)]
                assert [seen.statistics(f"Default/view-op{number}").max for number in range(6)] == [1, 1, 2, 3, 5, 6]


def test_what_is_about_to_be_gathered_is_not_looked_at_while_other_ranks_parts_are_missing() -> None:
    import torch.distributed.fsdp

    with captured() as seen:
        gathered = torch.empty(8)
        torch.ops.fsdp.all_gather_copy_in([torch.ones(4)], gathered, [4], 4, 0)
        seen.capture.end_step()
        assert seen.statistics("Default/fsdp.all_gather_copy_in-op0", 1) is None


def test_what_an_operator_writes_over_is_not_looked_at_before() -> None:
    buffers = [torch.full((2,), torch.nan) for _ in range(3)]
    ones = torch.ones(2)
    with captured() as seen:
        buffers[0].copy_(ones)
        torch.add(ones, ones, out=buffers[1])
        buffers[2].mul_(2)
        nodes = operators(seen.capture.end_step())
        copied, added, doubled = (nodes[f"Default/{name}-op0"].inputs for name in ("copy_", "add", "mul_"))
        assert [seen.statistics(*source) is None for source in copied[:2]] == [True, False]
        assert [seen.statistics(*source) is None for source in added] == [False, False, True]
        assert seen.statistics(*doubled[0]).nan_count == 2
        assert seen.statistics("Default/copy_-op0").max == 1
        assert seen.statistics("Default/add-op0").max == 2


def test_each_element_of_a_tuple_is_an_output() -> None:
    with captured() as seen:
        MATRIX.sort(dim=1)
        MATRIX.split(1)
        nodes = operators(seen.capture.end_step())
        assert [slot.dtype for slot in nodes["Default/sort-op0"].outputs] == ["float32", "int64"]
        assert len(nodes["Default/split-op0"].outputs) == 2
        assert seen.statistics("Default/split-op0", 1).max == 4


def test_what_a_tensor_of_ones_own_is_made_of_is_seen() -> None:
    with captured() as seen:
        subclasses()
        nodes = operators(seen.capture.end_step())
        assert torch.equal(seen.value("Default/mm-op0"), MATRIX @ MATRIX)
    assert list(nodes) == ["Default/mm-op0", "Default/add-op0"]


def test_a_child_of_a_fork_sees_nothing() -> None:
    with captured() as seen:
        MATRIX.exp()
        child = os.fork()
        if child == 0:
            seen.capture.stop()
            os._exit(0 if torch._C._len_torch_dispatch_stack() == 0 and float(MATRIX.sum()) == 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        MATRIX.sin()
        assert set(operators(seen.capture.end_step())) == {"Default/exp-op0", "Default/sin-op0"}


def _listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_plain(value: torch.Tensor) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and not (value.is_nested or value.is_quantized or value.is_meta or value.is_complex())
    )
