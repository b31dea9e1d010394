"""Multi-head attention whose heads stay where one product of all nodes has put them.

Products of every head read and write their columns of the wide tensors in place, so no head is
ever copied out. Softmax and dropout are the kernels of :mod:`brio_core.kernels.softmax_dropout`.
"""

import torch
from torch import Tensor

from brio_core.kernels import softmax_dropout as weighing
from brio_core.kernels.mapping import Derivative, to_front


def _by_head(entered: Tensor, enter: Tensor) -> Tensor:
    """Queries, keys and values as (graphs, P, 3, heads, units)."""
    return entered.view(-1, entered.shape[-2], *enter.shape[-4:-1])


class HeadAttention(torch.autograd.Function):
    """Nodes (*folds, B, P, D) and enter (*folds, 3, H, U, D) to heads (*folds, B, P, H * U).

    Place ``spare`` of all queries and values is 1. Also gives what backward reads: what the nodes
    were turned into, scores, and weights after dropout.
    """

    @staticmethod
    def forward(nodes, enter, keys, spare, rate):
        nodes, enter, keys = nodes.contiguous(), enter.contiguous(), keys.contiguous()
        (*lead, n_rois, width), (_, heads, units) = nodes.shape, enter.shape[-4:-1]
        folds = keys.numel()
        entered = torch.bmm(nodes.view(folds, -1, width), enter.view(folds, -1, width).mT)
        entered = entered.view(*lead, n_rois, -1)
        parts = _by_head(entered, enter)
        parts[:, :, ::2, :, spare] = 1.0
        query, sent, value = parts.unbind(2)
        scores = nodes.new_empty(len(parts), heads, n_rois, n_rois)
        for head in range(heads):
            torch.bmm(query[:, :, head], sent[:, :, head].mT, out=scores[:, head])
        weights = torch.empty_like(scores)
        weighing.launch(weighing.forward_kernel, scores, keys, rate, weights)
        heard = nodes.new_empty(len(parts), n_rois, heads, units)
        for head in range(heads):
            torch.bmm(weights[:, head], value[:, :, head], out=heard[:, :, head])
        square = (*lead, heads, n_rois, n_rois)
        heard = heard.view(*lead, n_rois, heads * units)
        return heard, entered, scores.view(square), weights.view(square)

    @staticmethod
    def setup_context(ctx, inputs, output):
        nodes, enter, keys, _, ctx.rate = inputs
        ctx.mark_non_differentiable(*output[1:])
        # Else their gradients would be made, as large as they are and all zero.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(nodes, enter, keys, *output[1:])

    @staticmethod
    def backward(ctx, grad, *_):
        # The first layer reads data, which needs no gradient.
        options = (ctx.rate, ctx.needs_input_grad[0])
        *to_nodes, to_enter = _HeadAttentionBackward.apply(*ctx.saved_tensors, grad, *options)
        return to_nodes[0] if to_nodes else None, to_enter, None, None, None

    @staticmethod
    def vmap(info, in_dims, nodes, enter, keys, spare, rate):
        front = to_front(info, in_dims, (nodes, enter, keys))
        return HeadAttention.apply(*front, spare, rate), (0,) * 4


class _HeadAttentionBackward(Derivative):
    @staticmethod
    def forward(nodes, enter, keys, entered, scores, weights, grad, rate, reaches_nodes):
        tensors = (nodes, enter, keys, entered, scores, weights, grad)
        nodes, enter, keys, entered, scores, weights, grad = (part.contiguous() for part in tensors)
        folds, width = keys.numel(), nodes.shape[-1]
        heads, units = enter.shape[-3:-1]
        query, sent, value = _by_head(entered, enter).unbind(2)
        to_entered = torch.empty_like(entered)
        to_query, to_sent, to_value = _by_head(to_entered, enter).unbind(2)
        weights = weights.flatten(0, -4)
        grad = grad.view(*query.shape)
        slopes = torch.empty_like(weights)
        for head in range(heads):
            above = grad[:, :, head]
            torch.bmm(weights[:, head].mT, above, out=to_value[:, :, head])
            torch.bmm(above, value[:, :, head].mT, out=slopes[:, head])
        # Every program reads what it overwrites before it does so.
        weighing.launch(weighing.backward_kernel, scores, keys, rate, slopes, slopes)
        for head in range(heads):
            torch.bmm(slopes[:, head], sent[:, :, head], out=to_query[:, :, head])
            torch.bmm(slopes[:, head].mT, query[:, :, head], out=to_sent[:, :, head])
        # The spare places are constants, and their weights zero: they pass nothing on.
        flat, nodes = to_entered.view(folds, -1, 3 * heads * units), nodes.view(folds, -1, width)
        to_enter = torch.bmm(flat.mT, nodes).view_as(enter)
        if not reaches_nodes:
            return (to_enter,)
        to_nodes = torch.bmm(flat, enter.view(folds, -1, width))
        return to_nodes.view(*entered.shape[:-1], width), to_enter

    @staticmethod
    def vmap(info, in_dims, *inputs):
        slopes = _HeadAttentionBackward.apply(*to_front(info, in_dims, inputs[:-2]), *inputs[-2:])
        return slopes, (0,) * len(slopes)
