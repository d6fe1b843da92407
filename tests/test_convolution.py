"""The kernel for weights' gradients against autograd: on a GPU, or in the interpreter where Triton is installed."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from loci.kernels import convolution

SHAPES = [(3, 48, 48, 5, 7, 1), (2, 24, 3, 4, 4, 1), (1, 112, 24, 6, 5, 0), (40, 16, 96, 4, 4, 1)]
"""Images, channels in and out, height and width, padding; blocks that are not full, and several of them."""


def compare(device, dtype):
    torch.manual_seed(0)
    for images, inputs, outputs, height, width, padding in SHAPES:
        x = torch.randn(images, inputs, height, width, device=device, dtype=dtype)
        weight = torch.randn(outputs, inputs, 3, 3, device=device, requires_grad=True)
        bias = torch.randn(outputs, device=device, requires_grad=True)
        y = F.conv2d(x.float(), weight, bias, padding=padding)
        signal = torch.randn_like(y).to(dtype)
        expected = torch.autograd.grad(y, (weight, bias), signal.float())
        if device == "cpu":
            last = (0, 2, 3, 1)
            flat = convolution._gradients(x.permute(last).contiguous(), signal.permute(last).contiguous(), padding)
            found = flat[:-outputs].view_as(weight), flat[-outputs:]
        else:
            found = convolution.gradients(x, signal, padding)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


@pytest.mark.skipif(convolution.triton is None, reason="no Triton here (torch's CPU build comes without)")
def test_kernel_is_autograd():
    if torch.cuda.is_available():
        compare("cuda", torch.bfloat16)
        return
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__], check=True, env=environment)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel is for GPUs")
def test_function_is_the_librarys():
    torch.manual_seed(0)
    x = torch.randn(6, 48, 9, 8, device="cuda", requires_grad=True)
    weight = torch.randn(48, 48, 3, 3, device="cuda", requires_grad=True)
    bias = torch.randn(48, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        ours, theirs = convolution.conv2d(x, weight, bias, 1), F.conv2d(x, weight, bias, padding=1)
    torch.testing.assert_close(ours, theirs)
    signal = torch.randn_like(ours)
    mine, other = (torch.autograd.grad(y, (x, weight, bias), signal) for y in (ours, theirs))
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two.to(one.dtype), rtol=2e-2, atol=2e-2 * float(two.abs().max()))


def test_elsewhere_it_is_the_library():
    x, weight = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    assert torch.equal(convolution.conv2d(x, weight, None, 1), F.conv2d(x, weight, padding=1))


if __name__ == "__main__":
    compare("cpu", torch.float32)
