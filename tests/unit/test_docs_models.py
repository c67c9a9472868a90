"""docs/models.md: its numbers are those of the networks, and its example works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import loaded
import pytest

from fedrepro.core.registry import components, parse_token
from fedrepro.networks.predict import network_of
from fedrepro.training.optimiser_steps import Layout

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text()
ROWS = re.findall(
    r"^\| `([^`]+)` \| .*? \| ([\d,]+)(?: on ([^|]+?)| with 80 codes)? \|", PAGE, re.M
)
SHAPES = {
    "MNIST": (28, 28),
    "CIFAR-10": (3, 32, 32),
    "spectrograms": (32, 32),
    "32×32 images": (3, 32, 32),
}


def test_every_model_has_its_row():
    assert {token.partition("+")[0] for token, _, _ in ROWS} == set(components("model"))


@pytest.mark.parametrize(("token", "count", "data"), ROWS)
def test_numbers_of_parameters_are_those_of_the_networks(token, count, data):
    model = parse_token("model", token)
    shape, classes = SHAPES.get(data, (28, 28)), 10
    if model.name == "char_lstm":
        shape, classes = (80,), 80
    if "pool_every~2+" not in token and token.endswith("padding~valid+pool_every~2"):
        shape = (3, 32, 32)
    found = Layout(network_of(model, shape, classes).shapes).numbers
    assert f"{found:,}" == count


def test_the_example_of_ones_own_model_trains(tmp_path):
    code = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "hourgl" in code)
    (tmp_path / "hourglass.py").write_text(code)
    # a second folder of the package stands for the file in src/fedrepro/models
    start = (
        "import sys, fedrepro.components.models as found; found.__path__.append(sys.argv[1])\n"
        "from fedrepro.cli.main import main\n"
        "import json\n"
        "def stage(**keys): assert main(['job', json.dumps(keys)]) == 0\n"
        "digits = {'name': 'digits'}\n"
        "stage(stage='prepare', dataset=digits, out='d')\n"
        "split = {'dataset': digits, 'partition': {'name': 'iid', 'clients': 2}, 'data': 'd',\n"
        "         'trials': [0, 0]}\n"
        "stage(stage='partition', **split, out='p')\n"
        "stage(stage='train', **split, model={'name': 'hourglass', 'narrow': 5}, clients=[0, 1],\n"
        "      training={'name': 'sgd', 'epochs': 1, 'init': 'fan_in'},\n"
        "      members='p/partition.parquet', out='m')\n"
        "from fedrepro.core.state_and_model_files import read_models\n"
        "print(read_models(['m/local.parquet'], [0])[0].tensors['weight1'].shape)\n"
    )
    run = loaded.python(["-c", start, str(tmp_path)], tmp_path)
    assert run.returncode == 0, run.stderr
    assert "(2, 100, 5)" in run.stdout
