"""Dense graph convolutions: graphs are small, so a batch of them is one tensor."""

from torch import Tensor, nn


class DenseGcn(nn.Linear):
    """``operator @ X @ W + b`` with an operator normalised beforehand, (..., P, P)."""

    def forward(self, hidden: Tensor, operator: Tensor) -> Tensor:
        # Projecting first makes the product with the operator narrow.
        return operator @ (hidden @ self.weight.T) + self.bias
