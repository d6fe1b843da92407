"""Adam in one launch against torch's: on a GPU, or in the interpreter where Triton is installed."""

import os
import subprocess
import sys

import pytest
import torch

from loci.kernels import adam
from loci.kernels.launch import available

SIZES = [(3,), (48, 48, 3, 3), (1,), (7, 1000), (1024,)]


def optimisers(parameters, fused):
    """Two, of different rates, as a network's groups have them."""
    parts = (parameters[:2], parameters[2:])
    rates = [torch.tensor(rate, device=parameters[0].device) for rate in (1e-2, 3e-3)]
    return [
        torch.optim.Adam(part, lr=rate, eps=1e-16, fused=fused, capturable=parameters[0].is_cuda)
        for part, rate in zip(parts, rates, strict=True)
    ]


def compare(device):
    torch.manual_seed(0)
    theirs = [torch.nn.Parameter(torch.randn(size, device=device)) for size in SIZES]
    ours = [torch.nn.Parameter(p.detach().clone()) for p in theirs]
    both = optimisers(theirs, True), optimisers(ours, True)
    update = None
    for number in range(6):
        for mine, other in zip(ours, theirs, strict=True):
            other.grad = torch.randn_like(other) * 10.0**-number
            mine.grad = other.grad.clone()
        dropped = torch.tensor(float(number == 3), device=device)
        for group in both[0]:
            group.found_inf = dropped
            group.step()
        if update is None:  # the first makes the moments
            for group in both[1]:
                group.found_inf = dropped
                group.step()
            update = adam.Update(both[1], ours)
        else:
            update(dropped)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    for group, other in zip(*both, strict=True):
        for one, two in zip(group.state.values(), other.state.values(), strict=True):
            assert float(one["step"]) == float(two["step"]) == 5
            torch.testing.assert_close(one["exp_avg_sq"], two["exp_avg_sq"], rtol=3e-5, atol=0)  # 1 - 0.999 in float32


@pytest.mark.skipif(not available(), reason="no Triton here (torch's CPU build comes without)")
def test_one_launch_is_torchs_adam():
    if torch.cuda.is_available():
        compare("cuda")
        return
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__], check=True, env=environment)


if __name__ == "__main__":
    compare("cpu")
