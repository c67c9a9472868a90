"""Pages on adding a method: their methods are held to the contract, and run, as they stand."""

from __future__ import annotations

import os
import re
from pathlib import Path

import loaded
import pytest

from fedrepro.api import NEEDS
from fedrepro.training.federation.clients import Clients, GraphNodes

ROOT = Path(__file__).parents[2]
PAGES = ("docs/adding-a-method.md", "docs/adding-a-method-in-rounds.md")
PAGE = "".join((ROOT / page).read_text() for page in PAGES)
FILES = re.findall(r"^`src/fedrepro/methods/(\w+)\.py`:\n\n```python\n(.*?)```", PAGE,
                   re.M | re.S)  # fmt: skip
# a second folder of the package stands for the files in src/fedrepro/methods
FOUND = "import os, fedrepro.methods as found\nfound.__path__.append(os.environ['OWN_METHODS'])\n"
NAMES = ("median", "my_fedavg", "my_fedavgm", "my_sam", "my_walk", "my_neighbours")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with the files of the page, and a module that makes the package find them."""
    folder = tmp_path_factory.mktemp("own")
    for name, code in FILES:
        (folder / f"{name}.py").write_text(code)
    (folder / "own_plugin").mkdir()
    (folder / "own_plugin/own_methods.py").write_text(FOUND)
    return folder


def python(own, *words, cwd=ROOT):
    path = os.pathsep.join([str(own / "own_plugin"), str(ROOT / "src"), str(ROOT / "tests/unit")])
    env = {**os.environ, "PYTHONPATH": path, "OWN_METHODS": str(own)}
    run = loaded.python(words, cwd, env)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    return run.stdout


def test_the_page_has_a_file_of_each_kind():
    files = ["median", "my_fedavg", "my_sam", "my_walk", "my_neighbours"]
    assert [name for name, _ in FILES] == files


STAGES = """
import own_methods
import jobs
def stage(*words): assert jobs.stage(*words) == 0
scenario = ['--dataset', 'digits', '--partition', 'iid+clients~3', '--model', 'mlp+hidden~10',
            '--training', 'adam+epochs~2+shared_init~true']
made = [*scenario, '--data', 'd', '--members', 'p', '--trials', '0', '--timings', 't']
stage('prepare', '--dataset', 'digits', '--out', 'd')
stage('partition', *scenario[2:4], '--data', 'd', '--trials', '0', '--out', 'p')
stage('train', *made, '--clients', '0-2', '--out', 'm')
stage('aggregate', *made, '--method', 'median', '--local', 'm', '--out', 'median')
for name in ('my_fedavg', 'my_fedavgm'):
    stage('federate', *made, '--method', name + '+rounds~8+share~0.7', '--global-model', 'g',
          '--out', name)
stage('federate', *made, '--method', 'my_sam+fraction~1+rounds~8', '--global-model', 'g',
      '--out', 'my_sam')
stage('peer', *made, '--graph', 'ring', '--method', 'my_neighbours+rounds~8', '--out',
      'my_neighbours', '--confusion', 'c', '--nodes', 'n')
stage('simulate', '--method', 'my_walk+repeats~50', '--trials', '0', '--timings', 't', '--out',
      'my_walk')
from fedrepro.core.artifacts import read_table
walk = read_table('my_walk', 'metrics').to_pandas().query("phase == 'final'")
print('my_walk', float(walk['value'].item()))
for name in ('median', 'my_fedavg', 'my_fedavgm', 'my_sam', 'my_neighbours'):
    table = read_table(name, 'metrics').to_pandas().query("phase == 'final'")
    row = table[(table['metric'] == 'accuracy') & (table['split'] == 'test')]
    print(name, float(row['value'].iloc[0]))
rounds = read_table('my_fedavgm', 'metrics').to_pandas().query("metric == 'server_step'")
print('steps', len(rounds), bool((rounds['value'] > 0).all()))
"""


def test_the_methods_of_the_page_run(own, tmp_path):
    said = dict(line.split(" ", 1) for line in python(own, "-c", STAGES, cwd=tmp_path).splitlines())
    assert all(float(said[name]) > 0.5 for name in NAMES), said
    assert said["steps"] == "8 True"


def test_the_page_names_what_clients_do_and_what_that_needs():
    """A method of `Clients` that is new, or gone, is missed here."""
    rows = re.findall(r"^\| (`.+?) \| (.*?) \|", PAGE, re.M)
    named = set(re.findall(r"`(\w+)", " ".join(first for first, _ in rows)))
    public = {name for of in (Clients, GraphNodes) for name in vars(of) if not name.startswith("_")}
    fields = set(GraphNodes.__dataclass_fields__)
    assert named - {"clients", "peers"} == public | fields
    needs = set(re.findall(r"`(\w+)`", " ".join(second for _, second in rows)))
    assert needs <= set(NEEDS)
