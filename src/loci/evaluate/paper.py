"""The paper's figures as data, each with the table it stands in (Traub et al., ICLR 2023).

Shares are in percent where the paper gives percent.
"""

from __future__ import annotations

from collections.abc import Mapping

from loci.evaluate.report import Entry

HORIZONS = (10, 20, 30, 50, 100)

MOVING_MNIST = "Table 2 (tab:mmnistresults): Moving MNIST prediction accuracy"
MOVING_MNIST_MSE: dict[str, tuple[float, ...]] = {
    "PhyDNet": (35.6, 58.6, 80.7, 113.9, 155.1),
    "Loci": (30.7, 52.5, 98.3, 165.1, 221.2),
}
MOVING_MNIST_SSIM: dict[str, tuple[float, ...]] = {
    "PhyDNet": (0.913, 0.830, 0.739, 0.594, 0.484),
    "Loci": (0.923, 0.881, 0.814, 0.720, 0.639),
}

CATER = "Table 1 (tab:CATERresults): CATER snitch localisation"
CATER_METHODS: tuple[tuple[str, Entry, Entry, Entry, Entry, Entry], ...] = (
    ("Random", None, 2.8, 13.8, 3.9, None),
    ("Transformer", 15.01, 13.7, 39.9, 3.53, None),
    ("SINet", 138.69, 21.1, 47.1, 3.14, None),
    ("TSN (RGB) + LSTM", None, 25.6, 67.2, 2.6, None),
    ("DaSiamRPN", None, 33.9, 40.8, 2.4, None),
    ("I3D-50 + LSTM", None, 60.2, 81.8, 1.2, None),
    ("Hopper-transformer", 15.01, 61.1, 86.6, 1.42, None),
    ("TSM-50", None, 64.0, 85.7, 0.93, None),
    ("TPN-101", None, 65.3, 83.0, 1.09, None),
    ("Hopper-sinet", 139.22, 69.1, 91.8, 1.02, None),
    ("Inferno", None, 71.7, 88.9, None, None),
    ("Hopper-multihop", 6.39, 73.2, 93.8, 0.85, None),
    ("Aloe", None, 74.0, 94.0, 0.44, None),
    ("OPNet", None, 74.8, None, 0.54, None),
    ("TFC V3D Depthwise", 24.64, 79.7, 95.5, 0.47, None),
    ("Loci supervised", 2.96, 90.7, 98.5, 0.14, 0.14),
    ("Loci unsupervised", 4.14, 78.4, 92.0, 0.45, 0.44),
)
"""Method, parameters (millions), top 1 (%), top 5 (%), L1 (grid), L2."""

CATER_SPREAD = "Table 4 (tab:CATERresults_stats): 25 evaluations, five networks with five seeds each"
CATER_STATISTICS: Mapping[str, tuple[Entry, Entry, Entry, Entry]] = {
    "Top 1 (%)": (88.9, 90.7, 0.8, 91.8),
    "Top 5 (%)": (97.5, 98.5, 0.4, 99.1),
    "L1 (grid)": (0.112, 0.140, 0.019, 0.174),
    "L2": (0.118, 0.139, 0.015, 0.170),
}
"""Minimum, mean, deviation, maximum."""
CATER_UNSUPERVISED: Mapping[str, tuple[Entry, Entry, Entry, Entry]] = {
    "Top 1 (%)": (None, 78.4, None, None),
    "Top 5 (%)": (None, 92.0, None, None),
    "L1 (grid)": (None, 0.45, None, None),
    "L2": (None, 0.44, None, None),
}
"""The same of the unsupervised read-out, as far as it is given."""

CLEVR = "Table 5 (tab:CATERresults_runs3): masks of five CATER networks on CLEVR, 30 iterations on one image"
CLEVR_NETWORKS: tuple[tuple[float, float], ...] = ((83.3, 96.8), (84.6, 97.0), (84.3, 97.1), (84.1, 96.7), (85.6, 97.2))
"""Mask average and pixel average (%), of each network."""
