"""The map from the paper to the code: nothing of the paper is left out, and everything it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "loci"
MAP = (ROOT / "docs" / "paper_map.md").read_text()
PAPER = ROOT.parent / "shared" / "paper" / "loci-iclr2023.tex"

TABLES = {"CATERresults", "mmnistresults", "CATERresults_runs", "CATERresults_stats", "CATERresults_runs3"}
FIGURES = {
    "arch", "CATER", "cater_object_permanence", "snitch_supervised", "moving_mnist", "aquarium2", "clevrer_prediction",
    "gatel0rd_vs_lstm", "eprop_vs_bptt", "input_ablations", "loss_ablations", "position-Gestalt_noise_ablation_cater",
    "position-Gestalt_noise_ablation_mmnist", "clevrer_prediction2", "moving_mnist_leasion", "cluster_analysis",
    "snitch_contained", "encoder_flow_chart", "predictor_flow_chart", "decoder_flow_chart",
}  # fmt: skip
EQUATIONS = {
    "thr": 1, "Lo": 2, "Lo_g": 3, "Lt": 4, "Lp": 5, "Ls": 6, "full_loss_uns": 7, "full_loss_sup": 8, "l2_obj": 9,
    "gate_l0rd_1": 10, "gate_l0rd_2": 11, "gate_l0rd_3": 12, "gate_l0rd_4": 13, "gate_l0rd_5": 14, "gate_l0rd_6": 15,
    "eprop:gating": 18, "eprop:candidate": 22,
}  # fmt: skip
LINES = {"Algorithm 1": 28, "Algorithm 2": 7}


def section(title):
    """The rows of a section's table, as cells."""
    text = re.split(r"^## ", MAP, flags=re.M)
    (body,) = (part for part in text if part.startswith(title))
    rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@cache
def names(path):
    """All that a file defines, methods and fields with the name of their class before them."""
    found = set()

    def collect(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                found.add(prefix + node.name)
                collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                found.add(prefix + node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    collect(ast.parse(path.read_text()).body, "")
    return found


REFERENCES = sorted(set(re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", MAP)))


@pytest.mark.parametrize(("path", "name"), REFERENCES)
def test_what_the_map_names_is_there(path, name):
    if path.startswith(("tests/", "bench/")):
        assert (ROOT / path).is_file()
        return
    assert (SOURCE / path).is_file()
    assert not name or name in names(SOURCE / path)


def test_the_map_names_something():
    assert sum(bool(name) for _, name in REFERENCES) > 90


@pytest.mark.parametrize("algorithm", LINES)
def test_every_line_of_an_algorithm_is_there(algorithm):
    rows = section(algorithm)
    assert [int(number) for number, _, _ in rows] == list(range(1, LINES[algorithm] + 1))
    headings = {"pre-processing", "slot-wise encoder", "transition", "Gestalt binarisation", "slot-wise decoder"}
    assert all(here or what in headings | {"post-processing"} for _, what, here in rows)


def test_every_equation_is_there():
    rows = section("Equations")
    assert [int(number) for number, _, _ in rows] == list(range(1, 26))
    assert all(here for _, _, here in rows)
    labelled = {what.split(",")[0].removeprefix("eq:"): int(n) for n, what, _ in rows if what.startswith("eq:")}
    assert labelled == EQUATIONS


def test_every_table_and_figure_is_there():
    told = {label for cells in section("Tables and figures") for label in re.findall(r"(?:tab|fig):([\w-]+)", cells[0])}
    assert told == TABLES | FIGURES


def test_every_deviation_is_told_and_referred_to():
    told = [int(number) for number in re.findall(r"^\* \[D(\d+)\]", MAP, flags=re.M)]
    assert told == list(range(1, len(told) + 1))
    assert {int(number) for number in re.findall(r"\[D(\d+)\]", MAP)} == set(told)


def test_the_lists_above_are_those_of_the_paper():
    if not PAPER.exists():
        pytest.skip("../shared/paper is not here")
    text = PAPER.read_text()
    assert set(re.findall(r"\\label\{tab:([^}]+)\}", text)) == TABLES
    assert set(re.findall(r"\\label\{fig:([^}]+)\}", text)) == FIGURES
    assert set(re.findall(r"\\label\{eq:([^}]+)\}", text)) == set(EQUATIONS)
    assert equations(text) == 25
    algorithms = re.findall(r"\\begin\{algorithmic\}(.*?)\\end\{algorithmic\}", text, flags=re.S)
    assert [len(re.findall(r"\\(?:STATE|FOR|ENDFOR)\b", body)) for body in algorithms] == list(LINES.values())


def equations(text):
    """Numbered ones: each of an equation, each line of an align."""
    single = len(re.findall(r"\\begin\{equation\}", text))
    several = re.findall(r"\\begin\{align\}(.*?)\\end\{align\}", text, flags=re.S)
    cases = [re.sub(r"\\begin\{cases\}.*?\\end\{cases\}", "", body, flags=re.S) for body in several]
    return single + sum(len([line for line in re.split(r"\\\\", body) if line.strip()]) for body in cases)
