"""The kernel for weights' gradients against autograd: on a GPU, or in the interpreter where Triton is installed."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from loci.kernels import convolution, convolution_kernels
from loci.kernels.launch import available

SHAPES = [(3, 48, 48, 5, 7, 1), (2, 24, 3, 4, 4, 1), (1, 112, 24, 6, 5, 0), (40, 16, 96, 4, 4, 1)]
"""Images, channels in and out, height and width, padding; blocks that are not full, and several of them."""


def compare(device, dtype):
    torch.manual_seed(0)
    for images, inputs, outputs, height, width, padding in SHAPES:
        x = torch.randn(images, inputs, height, width, device=device, dtype=dtype)
        weight = torch.randn(outputs, inputs, 3, 3, device=device, requires_grad=True)
        bias = torch.randn(outputs, device=device, requires_grad=True)
        y = F.conv2d(x.float(), weight, bias, padding=padding)
        size = float(y.detach().abs().max())
        signal = torch.randn_like(y).to(dtype)
        expected = torch.autograd.grad(y, (weight, bias), signal.float())
        if device == "cpu":
            last = (0, 2, 3, 1)
            pixels, signals = x.permute(last).contiguous(), signal.permute(last).contiguous()
            flat = convolution_kernels._gradients(pixels, signals, padding)
            found = flat[:-outputs].view_as(weight), flat[-outputs:]
            filters = weight.detach().permute(2, 3, 1, 0).contiguous()
            maps = convolution_kernels._maps(pixels, filters, bias.detach(), padding)
            maps, rounding = maps.permute(0, 3, 1, 2), 1e-3
        else:
            found = convolution_kernels.gradients(x, signal, padding)
            maps, rounding = convolution_kernels.maps(x, weight.detach(), bias.detach(), padding), 1e-2
        torch.testing.assert_close(maps.float(), y.detach(), rtol=rounding, atol=rounding * size)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


@pytest.mark.skipif(not available(), reason="no Triton here (torch's CPU build comes without)")
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


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize(("inputs", "outputs", "padding"), [(48, 48, 1), (12, 4, 1), (3, 24, 0)])
def test_it_can_be_compiled_and_pads_channels(monkeypatch, inputs, outputs, padding):
    """On a CPU, with the library's gradients in place of the kernels'."""

    def gradients(x, dy, padding):
        shape = (dy.shape[1], x.shape[1], 3, 3)
        return torch.nn.grad.conv2d_weight(x.float(), shape, dy.float(), padding=padding), dy.float().sum((0, 2, 3))

    monkeypatch.setattr(convolution, "gradients", gradients)
    monkeypatch.setattr(convolution, "precision", lambda x, weight: torch.float32)
    torch.manual_seed(0)
    x = torch.randn(2, inputs, 7, 6, requires_grad=True)
    weight = torch.randn(outputs, inputs, 3, 3, requires_grad=True)
    bias = torch.randn(outputs, requires_grad=True)
    theirs = F.conv2d(x, weight, bias, padding=padding)
    signal = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, (x, weight, bias), signal)
    for function in (
        convolution.conv2d,
        torch.compile(convolution.conv2d, backend="aot_eager", fullgraph=True, dynamic=False),
    ):
        ours = function(x, weight, bias, padding)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        found = torch.autograd.grad(ours, (x, weight, bias), signal)
        for one, two in zip(found, expected, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_elsewhere_it_is_the_library():
    x, weight = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    assert torch.equal(convolution.conv2d(x, weight, None, 1), F.conv2d(x, weight, padding=1))


if __name__ == "__main__":
    compare("cpu", torch.float32)
