"""Pixels of masks, counted in parts."""

import torch

from loci.worlds import areas


def test_masks_are_counted_whatever_fits_at_once(monkeypatch):
    masks = torch.rand(2, 5, 3, 7, 9, generator=torch.Generator().manual_seed(0)) < 0.4
    for pixels in (1, 150, 10**6):
        monkeypatch.setattr(areas, "AT_ONCE", pixels)
        counted = areas.area(masks)
        assert counted.dtype == torch.int64
        assert torch.equal(counted, masks.sum((-1, -2)))
    assert areas.area(masks[:, :0]).shape == (2, 0, 3)
