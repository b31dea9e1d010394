"""Dense graph convolutions: graphs are small, so a batch of them is one tensor."""

from torch import Tensor, nn


class DenseGcn(nn.Linear):
    """``operator @ X @ W + b`` with an operator normalised beforehand, (..., P, P).

    Take ``bias=False`` in front of a BatchNorm: it would have no gradient but that of rounding.
    """

    def forward(self, hidden: Tensor, operator: Tensor) -> Tensor:
        # Projecting first makes the product with the operator narrow.
        propagated = operator @ (hidden @ self.weight.T)
        return propagated if self.bias is None else propagated + self.bias
