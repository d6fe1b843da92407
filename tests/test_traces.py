"""The trace kernels against their torch twins: on a GPU, or in Triton's interpreter where Triton is installed."""

import os
import subprocess
import sys

import pytest
import torch

from loci.kernels import traces as kernels
from loci.kernels.launch import available
from loci.model.gatelord import Traces, advance_traces, collect

SHAPES = [(3, 2, 5, 12), (17, 2, 4, 200), (5, 3, 6, 131)]
"""Entries, gates, rows and columns; blocks that are not full in every direction."""


def compare(device):
    torch.manual_seed(0)
    for entries, gates, rows, columns in SHAPES:
        old = Traces(*(torch.randn(entries, gates, rows, *more, device=device) for more in ((columns,), ())))
        keep, signal = torch.rand(entries, rows, device=device), torch.randn(entries, rows, device=device)
        local = torch.randn(entries, gates, rows, device=device)
        inputs = torch.randn(entries, columns, device=device)
        plain, fused = advance_traces(old, keep, local, inputs), kernels.advance_traces(old, keep, local, inputs)
        for ours, theirs in zip(
            (*fused, *kernels.collect(signal, plain)), (*plain, *collect(signal, plain)), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not available(), reason="no Triton here (torch's CPU build comes without)")
def test_kernels_are_their_twins():
    if torch.cuda.is_available():
        compare("cuda")
        return
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__], check=True, env=environment)


@pytest.mark.parametrize(("entries", "gates", "rows", "columns"), SHAPES)
def test_traces_are_what_their_equation_says(entries, gates, rows, columns):
    torch.manual_seed(1)
    old = Traces(torch.randn(entries, gates, rows, columns), torch.randn(entries, gates, rows))
    keep, local = torch.rand(entries, rows), torch.randn(entries, gates, rows)
    inputs, signal = torch.randn(entries, columns), torch.randn(entries, rows)
    before = old.weight.clone()
    new = advance_traces(old, keep, local, inputs)
    expected = torch.einsum("nj,ngji->ngji", keep, old.weight) + torch.einsum("ngj,ni->ngji", local, inputs)
    torch.testing.assert_close(new.weight, expected)
    torch.testing.assert_close(new.bias, keep[:, None] * old.bias + local)
    assert torch.equal(old.weight, before)  # time is an argument: what came in stays
    weight, bias = collect(signal, new)
    torch.testing.assert_close(weight, torch.einsum("nj,ngji->gji", signal, new.weight), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(bias, torch.einsum("nj,ngj->gj", signal, new.bias))


if __name__ == "__main__":
    compare("cpu")
