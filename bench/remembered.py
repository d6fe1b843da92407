"""What a training step keeps for its gradients, tensor by tensor, as torch.compile divides it: no GPU needed.

    PYTHONPATH=src python bench/remembered.py cater_fine [--batch 16] [--top 30]

The step is traced on the CPU with one video, on the paths that a GPU takes (bfloat16 convolutions of our own, shifts by
reads), and scaled to the batch. Traces appear twice, as the plain twins read them; on a GPU once.
"""

import argparse

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd

from loci import presets
from loci.bench.work import frames
from loci.kernels import convolution
from loci.kernels.shift import Shift
from loci.kernels.stride import mean_of_blocks
from loci.model import Loci, blocks, encoder, loss
from loci.train.schedule import Schedule
from loci.train.step import Learner, Lesson


def weight_gradients(x, dy, padding):
    """In place of the kernel."""
    shape = (dy.shape[1], x.shape[1], 3, 3)
    return torch.nn.grad.conv2d_weight(x.float(), shape, dy.float(), padding=padding), dy.float().sum((0, 2, 3))


def as_on_a_gpu():
    """Take its paths."""
    convolution.precision = lambda x, weight: torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
    convolution.gradients = weight_gradients
    loss.centre = lambda images, position: Shift.apply(images, position)
    encoder.pooled_by_4 = blocks.pooled_by_4 = mean_of_blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--top", type=int, default=30)
    options = parser.parse_args()
    as_on_a_gpu()
    config = presets.PRESETS[options.preset]()
    model = Loci(config.model).train()
    shown = frames(model, 1)
    state, _ = model.step(shown[0], model.start(1, shown[0][0]))
    kept = []

    def forward(graph, _):
        outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        for node in outputs:
            value = getattr(node, "meta", {}).get("val")
            if isinstance(value, torch.Tensor) and node.op != "placeholder":
                kept.append((value.numel() * value.element_size(), tuple(value.shape), str(value.dtype), str(node)))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        partition_fn=min_cut_rematerialization_partition,
    )
    settings = Schedule(config).settings(config.train.foreground + 1000, len(config.train.stages) - 1)
    torch.compile(Learner(model, rough=True), backend=backend, dynamic=False)(
        state.detach(), [Lesson(shown[0], shown[1])], settings
    )
    kept.sort(reverse=True)
    scale = options.batch / 2**20
    print(f"{options.preset}, batch {options.batch}: {sum(row[0] for row in kept) * scale:.0f} MiB")
    for size, *rest in kept[: options.top]:
        print(f"{size * scale:8.1f}", *rest)


if __name__ == "__main__":
    main()
