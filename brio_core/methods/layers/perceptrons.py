"""Linear layers of many rows, and what ends a layer; a GPU does that in one kernel."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.kernels.functions import Fused
from brio_core.kernels.functions import exact as always_exact
from brio_core.system.devices import float32_products
from brio_core.system.randomness import dropout, fold_in

# The fewest rows whose share of a weight's gradient is one product, and how many shares there are.
ROWS, SHARES = 512, 64


class RowLinear(Fused):
    """Weight (*K, e, d) and rows (*K, ..., d) to (*K, ..., e), also in ``exact`` products.

    The gradient of a weight is a product along all rows, but has few numbers: made at once, it
    would leave most of a GPU idle. So it is summed from those of equal parts of the rows, if any
    of about this size divide them.
    """

    @staticmethod
    def run(weight, rows, exact):
        flat = weight.view(-1, *weight.shape[-2:])
        with float32_products(exact):
            found = torch.bmm(rows.view(len(flat), -1, rows.shape[-1]), flat.mT)
        return found.view(*rows.shape[:-1], -1)

    @classmethod
    def backward(cls, ctx, grad):
        # Data needs no gradient.
        ctx.options = (ctx.options[0], ctx.needs_input_grad[1])
        return super().backward(ctx, grad)

    @staticmethod
    def slopes(grad, weight, rows, exact, reaches_rows):
        flat = weight.view(-1, *weight.shape[-2:])
        count = rows.numel() // (len(flat) * rows.shape[-1])
        least = max(ROWS, count // SHARES)
        size = next((size for size in range(least, 2 * least) if count % size == 0), count)
        above, below = (part.view(-1, size, part.shape[-1]) for part in (grad, rows))
        with float32_products(exact):
            to_weight = torch.bmm(above.mT, below).view(len(flat), -1, *weight.shape[-2:]).sum(1)
            to_weight = to_weight.view_as(weight)
            if not reaches_rows:
                return to_weight
            to_rows = torch.bmm(grad.view(len(flat), count, -1), flat)
        return to_weight, to_rows.view_as(rows)


def row_linear(rows: Tensor, weight: Tensor, exact: bool = False) -> Tensor:
    """``rows @ weight.mT`` for rows (..., d); ``exact`` where TF32 would round off too much."""
    # Mixed precision is left to torch.
    if torch.is_autocast_enabled(rows.device.type):
        return rows @ weight.mT
    return RowLinear.apply(weight, rows, exact or always_exact())


def drawn(values: Tensor, rate: float, key: Tensor | None, stream: int = 0) -> tuple[Tensor, float]:
    """The key of a kernel, with its stream folded in, and its rate; zeros where none is drawn."""
    if key is None or rate == 0:
        return values.new_zeros((), dtype=torch.int64), 0.0
    return fold_in(key, stream + 1), rate


def relu_dropout(
    values: Tensor, bias: Tensor, rate: float, key: Tensor | None, stream: int
) -> Tensor:
    """``dropout(relu(values + bias))``; no dropout without a key."""
    if kernels.usable(values, "relu_dropout"):
        from brio_core.kernels.dropout_layers import ReluDropout

        return ReluDropout.apply(values, bias, *drawn(values, rate, key, stream))
    return dropout((values + bias).relu(), rate, key, stream)


def dropout_gelu(
    values: Tensor, bias: Tensor, rate: float, key: Tensor | None, stream: int
) -> Tensor:
    """``gelu(dropout(values + bias))``; no dropout without a key."""
    if kernels.usable(values, "dropout_gelu"):
        from brio_core.kernels.dropout_layers import DropoutGelu

        return DropoutGelu.apply(values, bias, *drawn(values, rate, key, stream))
    return functional.gelu(dropout(values + bias, rate, key, stream))


def dropout_norm(
    hidden: Tensor,
    values: Tensor,
    bias: Tensor,
    norm: nn.LayerNorm,
    rate: float = 0.0,
    key: Tensor | None = None,
    stream: int = 0,
) -> Tensor:
    """``norm(hidden + dropout(values + bias))``; no dropout without a key."""
    if kernels.usable(values, "dropout_norm"):
        from brio_core.kernels.dropout_norm import DropoutNorm

        seed, rate = drawn(values, rate, key, stream)
        return DropoutNorm.apply(hidden, values, bias, norm.weight, norm.bias, seed, rate, norm.eps)
    return norm(hidden + dropout(values + bias, rate, key, stream))
