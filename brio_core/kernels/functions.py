"""What every fused kernel does under ``torch.func``, and the sizes of its tiles."""

from typing import Any

import torch
from torch import Tensor

# What no gradient exceeds that is a factor of products, nor its product with the weights: half of
# float16's range. A bound may be some hundred times too large, and all but the smallest millionth
# still rounds well. Gradients below the smallest bound lose digits, so that none is divided by
# almost nothing.
LARGEST, SMALLEST = 2.0**15, 1e-30


class Mapped(torch.autograd.Function):
    """A function without a derivative whose leading axes are a batch.

    An axis that ``vmap`` maps is one more of them, also for tensors that all folds share. ``run``
    gets contiguous tensors, unless the class says that it takes any.
    """

    contiguous = True

    @staticmethod
    def run(*inputs: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def forward(cls, *inputs: Any) -> Any:
        if cls.contiguous:
            inputs = [part.contiguous() if isinstance(part, Tensor) else part for part in inputs]
        return cls.run(*inputs)

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple, output: Any) -> None:
        """Nothing is kept."""

    @classmethod
    def backward(cls, ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("fused kernels have no second derivatives")

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, *inputs: Any) -> tuple[Any, Any]:
        output = cls.apply(
            *(_to_front(info.batch_size, dim, part) for part, dim in zip(inputs, in_dims))
        )
        return output, 0 if isinstance(output, Tensor) else (0,) * len(output)


def _to_front(size: int, dim: int | None, part: Any) -> Any:
    if not isinstance(part, Tensor):
        return part
    return part.expand(size, *part.shape) if dim is None else part.movedim(dim, 0)


class Constant(Mapped):
    """A function whose outputs have no gradient."""

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.count = len(inputs)
        ctx.mark_non_differentiable(*((output,) if isinstance(output, Tensor) else output))

    @classmethod
    def backward(cls, ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        return (None,) * ctx.count


class Fused(Mapped):
    """A function with a derivative, which has none of its own.

    ``keep`` chooses what the way back reads: tensors, then options. ``slopes`` makes of a gradient
    and of what was kept the gradients of the first inputs; the others have none. Only the first
    output has a gradient.
    """

    @staticmethod
    def keep(inputs: tuple, output: Any) -> tuple:
        return inputs

    @staticmethod
    def slopes(*arguments: Any) -> Any:
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        class Slopes(Mapped):
            # A function of its own, because only a function can say what ``vmap`` makes of it.
            run = staticmethod(cls.slopes)
            contiguous = cls.contiguous

        cls.Slopes = Slopes

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple, output: Any) -> None:
        constants = () if isinstance(output, Tensor) else output[1:]
        if constants:
            ctx.mark_non_differentiable(*constants)
            # Else their gradients would be made, as large as they are and all zero.
            ctx.set_materialize_grads(False)
        kept = cls.keep(inputs, output)
        ctx.save_for_backward(*(part for part in kept if isinstance(part, Tensor)))
        ctx.options = tuple(part for part in kept if not isinstance(part, Tensor))
        ctx.count = len(inputs)

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
        slopes = cls.Slopes.apply(grad, *ctx.saved_tensors, *ctx.options)
        slopes = (slopes,) if isinstance(slopes, Tensor) else slopes
        return *slopes, *[None] * (ctx.count - len(slopes))


def power_of_2(size: int) -> int:
    """The smallest power of two that is not below ``size``."""
    return 1 << (size - 1).bit_length()


def exact() -> bool:
    """Whether products must be those of float32 numbers."""
    return torch.get_float32_matmul_precision() == "highest"


def factor() -> torch.dtype:
    """What factors of products are kept as: float16 rounds as TF32 does, in half the bytes."""
    return torch.float32 if exact() else torch.float16


def row_tile(width: int, numbers: int) -> dict[str, int]:
    """A tile of some whole rows: about so many numbers."""
    columns = power_of_2(width)
    return {"ROWS": max(1, numbers // columns), "COLUMNS": columns}
