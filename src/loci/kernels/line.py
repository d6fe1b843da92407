"""Work on a CPU as a straight line of operators, recorded once for its shapes.

A step of a small network is a thousand tiny operators, and most of its time goes to calling them. The line has those of
the plain step, so it says the same, but what depends on the weights alone (filters, gains on weights, coordinates, the
names of random keys) is worked out once, what nobody reads is left out, and filters lie in memory as the convolutions
of the chip's library want them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from loci.kernels.record import leaves
from loci.model.state import tree_map

A = TypeVar("A")
R = TypeVar("R")
PACKED = (torch.float32, torch.bfloat16)


class Line(Generic[A, R]):
    """Work on a tree of tensors; without gradients."""

    def __init__(self, work: Callable[[A], R], arguments: A, weights: Iterable[Tensor]) -> None:
        """Record.

        Args:
            work: Uses nothing but its argument and the weights, and asks no tensor for its numbers.
            arguments: Of the shapes that it is for.
            weights: What the work reads beside its argument; the line is stale once one of them has changed.
        """
        self.weights = list(weights)
        self.versions = self._versions()
        self.shape: R

        def flat(tensors: list[Tensor]) -> list[Tensor]:
            result = work(refilled(arguments, tensors))
            self.shape = tree_map(lambda x: x.new_empty(0), result)
            return leaves(result)

        with torch.inference_mode(False), torch.no_grad():
            given = [tensor.clone() for tensor in leaves(arguments)]
            line = make_fx(flat)(given)
            _fold(line)
            _pack(line, given)
            line.recompile()
        self.line = line
        self(arguments)  # what does not work is known now

    def __call__(self, arguments: A) -> R:
        """The work on these numbers."""
        return refilled(self.shape, self.line(leaves(arguments)))

    def stale(self) -> bool:
        """Whether weights have changed since."""
        return self._versions() != self.versions

    def _versions(self) -> list[int]:
        return [0 if weight.is_inference() else weight._version for weight in self.weights]


def refilled(tree: R, tensors: Sequence[Tensor]) -> R:
    """The tree with these tensors in place of its own."""
    following = iter(tensors)
    return tree_map(lambda _: next(following), tree)


def _fold(line: fx.GraphModule) -> None:
    """What depends on constants alone becomes a constant; what nobody reads goes."""
    known: dict[fx.Node, Any] = {}
    for node in list(line.graph.nodes):
        if node.op == "get_attr":
            known[node] = getattr(line, node.target)
        elif node.op == "call_function" and all(given in known for given in node.all_input_nodes):
            if any(_writes(user) for user in node.users):
                continue
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    for node, value in known.items():
        if node.op == "call_function" and isinstance(value, Tensor) and any(user not in known for user in node.users):
            node.replace_all_uses_with(_constant(line, node, value))
    line.graph.eliminate_dead_code()


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _constant(line: fx.GraphModule, before: fx.Node, value: Tensor) -> fx.Node:
    name = f"constant_{len(list(line.buffers()))}"
    line.register_buffer(name, value.detach())
    with line.graph.inserting_before(before):
        return line.graph.get_attr(name)


def _pack(line: fx.GraphModule, given: list[Tensor]) -> None:
    """Filters of convolutions in the library's own order, and the ReLU behind a convolution in the same pass."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    seen = _Layouts(line)
    seen.run(given)
    for node in list(line.graph.nodes):
        if node.target is not torch.ops.aten.convolution.default:
            continue
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
        last = seen.found[x].is_contiguous(memory_format=torch.channels_last)
        if weight.op != "get_attr" or transposed or not last or seen.found[x].dtype not in PACKED:
            continue
        filters = getattr(line, weight.target).detach().to_mkldnn()
        shape = list(seen.found[x].shape)
        reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight
        packed = reorder(filters, padding, stride, dilation, groups, shape)
        users = list(node.users)
        relu = len(users) == 1 and users[0].target is torch.ops.aten.relu.default
        ends: tuple[Any, ...] = (padding, stride, dilation, groups, "relu" if relu else "none", [], "")
        constant = _constant(line, node, packed)
        with line.graph.inserting_before(node):
            call = torch.ops.mkldnn._convolution_pointwise.default
            convolution = line.graph.call_function(call, (x, constant, bias, *ends))
        replaced = users[0] if relu else node
        replaced.replace_all_uses_with(convolution)
        seen.found[convolution] = seen.found[replaced]
    line.graph.eliminate_dead_code()


class _Layouts(fx.Interpreter):
    """What every node gives, without its numbers."""

    def __init__(self, line: fx.GraphModule) -> None:
        super().__init__(line)
        self.found: dict[fx.Node, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run it and note it."""
        result = super().run_node(n)
        if isinstance(result, Tensor) and not result.is_mkldnn:
            self.found[n] = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        return result
