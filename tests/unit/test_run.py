"""`fedrepro run`, `start` and `compare`, as commands and as functions; FedAvg is a plain loop."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import yaml
from sklearn.datasets import load_digits
from synthetic import KEY, ROOT, draw, made_once, plan, plausible, undrawn, workplace

import fedrepro
from fedrepro.cli.main import main
from fedrepro.core import command_under_lock, source_digests
from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.intervals import interval_of_mean
from fedrepro.planning.command_line_runs import RunWords, exhibits_of_words, plan_of_words
from fedrepro.stages import run_figures_or_methods, snakemake_in_folder
from fedrepro.stages.run_figures_or_methods import _place, _words
from fedrepro.stages.user_models.combine import evaluations
from fedrepro.stages.user_models.model_and_data_files import ModelFiles

MISTAKES = {
    "run fedavgg": "unknown method 'fedavgg': did you mean 'fedavg'?",
    "run fedavg,FedAvg": "method 'FedAvg' is named twice",
    "run fedavg --data minst": "unknown data set 'minst': did you mean 'mnist'?",
    "run fedavg --partition dirichlt:0.1": "unknown partition 'dirichlt': did you mean 'dirichlet'",
    "run fedavg --partition dirichlet:x": "parameter 'alpha' cannot be read from 'x'",
    "run scaffold --optimiser adam": "scaffold",
    "run fedavg --clients 0": "parameter 'clients' must be at least 1",
    "run fedavg --partition label_lists --clients 5": "--clients 5 is not read, since the part",
    "run fedavg scaffold.lr=0.1": "unknown name before the dot 'scaffold' in 'scaffold.lr'",
    "run fedavg --data mine.csv": "--data takes the name of a data set, not the file mine.csv",
    "run fedavg lr=0.1": "write it as in fedavg.lr, or as an option",
    "run fedavg proximal=0.1": "'proximal' does not say of what it is a parameter: write it as in",
    "run fedavg fedavg.mometum=0.9": "unknown parameter 'mometum' in 'fedavg': did you mean",
    "run fedavg fedavg.lr": "'fedavg.lr' has no value: write it as in scaffold.lr=0.1",
    "run gossip_sgd": "graph",
    "run gossip_sgd,fedavg --graph ring --fraction 0.1": "'gossip_sgd' has no parameter 'fraction'",
    "run feddf": "would have the clients' own data as its public data: name others, as in feddf",
    "run feddf --data fmnist feddf.public_data=fashion_mnist": "as in feddf.public_data=mnist",
    "run pfnm_streaming --rounds 50": "'pfnm_streaming' has no parameter 'rounds'",
    "run fedavg --optimiser sgd:0.1 --lr 0.5": "--lr 0.5 is not read, since training.lr is 0.1",
    "run fedavg fedavg.lr=0.2 FedAvg.lr=0.1": "'FedAvg.lr' is said in another way too",
    "run fedavg --optimiser sgd:0.2 training.lr=0.1": "'training.lr' is said in another way too",
    "run fedavg --partition dirichlet:1 partition.alpha=2": "'partition.alpha' is said in another",
    "run fedavg --partition two-labels+each~3 partition.each=4": "is said in another way too",
    "run fedavg fedavg.lr=0.2 fedavg.lr=0.1": "a parameter is given twice: leave one",
    "run ,": "name one method or several",
    "run none.yaml": "none.yaml is missing",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_sentence_before_anything_is_made(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert MISTAKES[command] in said.err
    assert (said.out, list(tmp_path.iterdir())) == ("", [])


def test_words_are_an_exhibit_with_the_names_of_the_field():
    changes = {"scaffold.lr": "0.1", "partition.clients": "4", "model.hidden": "20,10"}
    changes |= {"training.epochs": "7", "scaffold.epochs": "2"}
    partition = "dirichlet:0.1+balance~true"
    words = RunWords(["fedavg", "FedProx", "scaffold"], "digits", 10, partition, changes=changes)
    made = plan_of_words(exhibits_of_words(words, "run"))
    assert [measure.label for measure in made.measures] == ["FedAvg", "FedProx", "SCAFFOLD"]
    scenario = made.points[0].scenario
    assert scenario.partition.token == "dirichlet+alpha~0.1+balance~true+clients~4"
    assert scenario.model["hidden"] == (20, 10)
    rates = {run.method.token: run.scenario.training["lr"] for run in made.trials}
    assert rates == {"fedavg+epochs~7+fraction~1": 0.05, "scaffold+epochs~2+fraction~1": 0.1} | {
        "fedavg+epochs~7+fraction~1+proximal~0.01": 0.05
    }
    assert words.command == (
        "fedrepro run fedavg,FedProx,scaffold --data digits --partition "
        "'dirichlet:0.1+balance~true' scaffold.lr=0.1 partition.clients=4 model.hidden=20,10 "
        "training.epochs=7 scaffold.epochs=2"
    )


@pytest.mark.parametrize(
    ("option", "word", "token"),
    [
        ("partition", "two-labels", "labels_each+clients~10"),
        ("partition", "labels:3", "labels_each+clients~10+each~3"),
        ("partition", "one-class", "one_class"),
        ("partition", "iid+clients~20", "iid+clients~20"),
        ("optimiser", "sgd:0.1+epochs~3+shared_init~false", "sgd+epochs~3+init~fan_in"),
        ("model", "mlp:200@100", "mlp+hidden~200@100"),
        ("model", "2nn", "mlp+hidden~200@200"),
        ("model", "lenet5", "cnn+channels~6@16+hidden~120@84+padding~valid"),
        ("data", "fmnist", "fashion_mnist"),
        ("data", "CIFAR-10", "cifar10"),
    ],
)
def test_short_forms(option, word, token):
    made = plan_of_words(exhibits_of_words(RunWords(["fedavg"], **{option: word}), "run"))
    kind = {"data": "dataset", "optimiser": "training"}.get(option, option)
    assert getattr(made.points[0].scenario, kind).token == token


def test_other_words_take_no_exhibits_place_and_intervals_are_as_wide_above_as_below(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("config/exhibits").mkdir(parents=True)
    numbers = {"lr": np.float64(0.1), "changes": {"fedavg.epochs": np.array([2])}}
    for values, name in (({}, "fedavgmnist"), (numbers, "fedavgmnistv2")):
        for _ in range(2):  # the same words have the same place
            path, text = _place(_words({"methods": "fedavg"} | values))
            assert path.stem == name
            path.write_text(text)
    values = np.array([0.5722222222, 0.4694444444])
    found = interval_of_mean(values, 0.95)
    half = pytest.approx(12.7062 * values.std(ddof=1) / np.sqrt(2), rel=1e-4)
    assert found.high - found.value == half == found.value - found.low
    one = interval_of_mean(values[:1], 0.95)
    assert (one.low, one.high) == (-np.inf, np.inf)  # no ± is printed


def test_names_are_listed_and_a_second_run_at_once_is_refused(capsys, tmp_path, monkeypatch):
    for kind, name in ("models", "lenet5"), ("data", "mnist"), ("partitions", "two-labels"):
        assert main(["list", kind]) == 0
        assert name in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    held = command_under_lock.take(snakemake_in_folder.LOCK)
    with pytest.raises(FedreproError, match=r"a run \(process .* is at work in .*wait until"):
        snakemake_in_folder.compute(["x"])
    os.close(held)


def plain_fedavg(trial: int, clients: int, rounds: int, lr: float, batch: int) -> float:
    """FedAvg as a loop of plain PyTorch on digits: test accuracy after all rounds."""
    digits = load_digits()
    generator = torch.Generator().manual_seed(trial)
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=generator)
    test, train = order[:360], order[360:]
    held = torch.chunk(train, clients)
    torch.manual_seed(trial)
    network = torch.nn.Sequential(torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
    for _ in range(rounds):
        start = {k: v.clone() for k, v in network.state_dict().items()}
        total = {k: torch.zeros_like(v) for k, v in start.items()}
        for rows in held:
            network.load_state_dict(start)
            optimiser = torch.optim.SGD(network.parameters(), lr=lr)
            shuffled = rows[torch.randperm(len(rows), generator=generator)]
            for part in torch.split(shuffled, batch):
                optimiser.zero_grad()
                logits = network(inputs[part])
                torch.nn.functional.cross_entropy(logits, labels[part]).backward()
                optimiser.step()
            for k, v in network.state_dict().items():
                total[k] += v * len(rows) / len(train)
        network.load_state_dict(total)
    with torch.no_grad():
        return float((network(inputs[test]).argmax(1) == labels[test]).float().mean())


@pytest.mark.workflow
@pytest.mark.long
def test_a_run_agrees_with_a_plain_loop_within_the_spread_of_trials(tmp_path):
    given = {"data": "digits", "clients": 5, "rounds": 10, "lr": 0.1, "batch_size": 16}
    found = fedrepro.run(methods="fedavg", trials=3, folder=tmp_path / "runs", **given)
    (row,) = found.to_dict("records")
    plain = np.array([plain_fedavg(trial, 5, 10, 0.1, 16) for trial in range(6)])
    error = np.sqrt(plain.var(ddof=1) / 6 + ((row["high"] - row["accuracy"]) / 4.303) ** 2)
    assert abs(row["accuracy"] - plain.mean()) < 4 * error
    assert plain.mean() > 0.6
    assert 4 * error < 0.1  # so that another method would not pass
    sent = 2 * 4 * (64 * 50 + 50 + 50 * 10 + 10) * 5 * 10
    assert row["megabytes"] == pytest.approx(sent / 1e6, rel=0.01)
    for name in ("file", "csv", "yaml"):
        assert Path(found.attrs[name]).stat().st_size
    assert fedrepro.run(found.attrs["yaml"])["accuracy"].tolist() == found["accuracy"].tolist()


NET = """import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self) -> None:
        body = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
        super().__init__(*body)
"""


@pytest.mark.workflow
def test_an_own_network_is_trained_from_its_file(tmp_path, monkeypatch):
    """Jobs are planned in a process whose first import of torch is that of the file."""
    events = MagicMock()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", events)
    monkeypatch.setattr(run_figures_or_methods, "find_spec", bool)
    (tmp_path / "nets.py").write_text(NET)
    given = {"data": "digits", "clients": 2, "rounds": 3, "lr": 0.1, "batch_size": 16}
    model, folder = f"{tmp_path}/nets.py:Net", tmp_path / "runs"
    found = fedrepro.run(methods="fedavg", model=model, trials=1, folder=folder, **given)
    assert found["accuracy"].item() > 0.5
    assert events.SummaryWriter.call_args.args[0].endswith("/rounds.events/FedAvg")
    added = events.SummaryWriter().__enter__().add_scalar.call_args_list
    assert [call.args[2] for call in added] == [1, 2, 3]
    assert added[-1].args[:2] == ("test accuracy", found["accuracy"].item())
    (path,), space = found.attrs["networks"], dict[str, Any]()
    exec(NET, space)
    space["Net"]().load_state_dict(torch.load(path, weights_only=True)["trials"]["0"])
    x, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "data.npz", x=np.float32(x.reshape(-1, 1, 8, 8) / 16), y=y)
    (one,) = evaluations(ModelFiles([Path(path)], model, "1,8,8", evaluate=tmp_path / "data.npz"))
    assert one["name"] == f"{path}, trial 0"
    torch.save({"trials": {}}, tmp_path / "failed.pt")
    with pytest.raises(FedreproError, match="has no network, since all trials failed"):
        next(evaluations(ModelFiles([tmp_path / "failed.pt"], evaluate=tmp_path / "data.npz")))
    assert one["accuracy"] == pytest.approx(found["accuracy"].item(), abs=0.1)  # training too


BOOM = """from fedrepro.api import method


@method("boom", kind="one_shot", label="Boom")
def boom(clients, info, *, rng):
    "Fail."
    raise ValueError("no such model")
"""


@pytest.mark.workflow
def test_a_run_reads_and_names_what_its_own_folder_has(tmp_path, monkeypatch):
    """A graph is checked where jobs read it; tables and exhibits are told apart in the result."""
    monkeypatch.chdir(tmp_path)
    fedrepro.start("runs")
    Path("config/graphs").mkdir(parents=True)
    Path("config/graphs/mine.csv").write_text("0.5 0.5\n0.5 0.5\n")
    with pytest.raises(FedreproError, match=r"graphs/mine.csv is not a matrix"):
        fedrepro.run(methods="gossip_sgd", data="digits", clients=2, graph="file:mine")
    sweep, shown = {"partition.clients": [2]}, {"sigma2": [0.1, 1.0], "show": ["sigma2"]}
    tables = {
        name: {
            "title": name, "place": "here", "caption": "", "scales": ["paper"], "trials": 1,
            "drawing": {"name": "table", "rows": ["method", "sigma2"]}, "sweep": sweep,
            "dataset": {"name": "digits"}, "partition": {"name": "iid"},
            "model": {"name": "mlp", "hidden": [4]}, "training": {"name": "adam", "epochs": 1},
            "methods": [{"name": "pfnm", "label": "P", **shown}],
        }
        for name in ("one", "two")
    }  # fmt: skip
    Path("mine.yaml").write_text(
        yaml.safe_dump({"paper": "mine", "title": "", "source": "", "exhibits": tables})
    )
    found = fedrepro.run("mine.yaml", folder="runs")
    assert found[["exhibit", "sigma2"]].values.tolist() == [
        [name, value] for name in tables for value in (0.1, 1.0)
    ]
    assert found.attrs["file"].endswith("one.html")


@pytest.mark.workflow
def test_a_run_says_which_method_failed_or_diverged_and_exits_by_1(tmp_path, monkeypatch, capsys):
    (tmp_path / "boom.py").write_text(BOOM)
    monkeypatch.setenv(component_files.NAMED, str(tmp_path / "boom.py"))
    monkeypatch.chdir(tmp_path)
    words = "--data digits --clients 2 --epochs 1 --rounds 2 --trials 1 fedavg.lr=1e30"
    assert main(["run", "boom,fedavg", *words.split()]) == 1
    said = capsys.readouterr()
    assert re.search(r"Boom +│ failed +│", said.out)
    assert "ValueError: no such model" in said.err
    assert "FedAvg: 4 of the clients' updates were not finite numbers" in said.err
    assert f"again: FEDREPRO_COMPONENTS={tmp_path}/boom.py fedrepro run boom,fedavg" in said.out


def test_an_interrupt_ends_jobs_too():
    """It may reach `fedrepro` alone; a shell waits for its command before it ends."""
    code = "import time; print('began', flush=True); time.sleep(60)"
    command = ["sh", "-c", f'{sys.executable} -c "{code}"; echo ended']
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests may run in the background
    with subprocess.Popen(command, stdout=-1, text=True, preexec_fn=heard) as process:
        assert process.stdout.readline() == "began\n"
        snakemake_in_folder._interrupt(process.pid)
        assert "ended" not in process.communicate(timeout=20)[0]
    assert process.returncode != 0


def test_the_file_of_a_run_names_its_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, text = _place(RunWords(["fedavg"]), "fedrepro run fedavg --model nets.py:Net", "nets.py:Net")
    assert text.startswith("# of its own network: set FEDREPRO_COMPONENTS=nets.py:Net")
    assert yaml.safe_load(text)["source"] == "fedrepro run fedavg --model nets.py:Net"


__all__ = ["undrawn", "workplace"]
SNAKEMAKE = ["-P", "-m", "snakemake", "--nolock", "--rerun-incomplete"]


@pytest.fixture
def drawn(workplace, undrawn):
    """A working folder with one drawn exhibit."""
    made_once("notebook", lambda: draw(plan(), KEY, plausible))
    Path("workflow").mkdir(exist_ok=True)
    Path(snakemake_in_folder.WORKFLOW).touch()
    return Path.cwd()


@pytest.fixture
def snakemake(monkeypatch):
    """In the place of Snakemake: keeps its commands, and ends with what is set."""
    calls, ends = [], {"returncode": 0, "stdout": "", "stderr": ""}

    def popen(command, stdout, **_):
        calls.append((command[1:], os.getcwd()))
        stdout.write(ends["stdout"] + ends["stderr"])
        return SimpleNamespace(wait=lambda _=0: 0, returncode=ends["returncode"])

    monkeypatch.setattr(snakemake_in_folder.subprocess, "Popen", popen)
    return calls, ends


def test_who_has_a_wheel_is_told_where_to_start(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in (["exhibits"], ["data", "list"]):
        assert main(command) == 2
        assert "a folder that `fedrepro start FOLDER` made" in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedrepro {fedrepro.__version__}\n"


def test_a_folder_begins_with_configuration_and_workflow_once(tmp_path):
    assert main(["start", str(tmp_path / "new")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {*snakemake_in_folder.BEGINNING}
    same = "config/config.yaml"
    assert (tmp_path / "new" / same).read_bytes() == (ROOT / same).read_bytes()
    (tmp_path / "new" / same).write_text("mine")
    with pytest.raises(FedreproError, match="new/Snakefile is there already: name a folder"):
        fedrepro.start(tmp_path / "new")
    assert (tmp_path / "new" / same).read_text() == "mine"


def test_a_wheel_brings_its_own_and_a_package_alone_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(source_digests, "PACKAGE", str(tmp_path / "lib/fedrepro"))
    with pytest.raises(FedreproError, match="has no workflow at"):
        fedrepro.start(tmp_path / "one")
    inside = tmp_path / "lib/fedrepro" / snakemake_in_folder.INSTALLED
    for name in set(snakemake_in_folder.BEGINNING) - {"Snakefile"}:
        (inside / name).mkdir(parents=True)
    (inside / "Snakefile").write_text("rule")
    (inside / snakemake_in_folder.WORKFLOW).touch()
    (inside / "workflow/a.json").touch()
    (inside / "config/config.yaml").write_text("components: [mine.py]\nmirror: data\n")
    assert source_digests.on_disk(source_digests.PACKAGE) == {}  # digests are those of the checkout
    fedrepro.start(tmp_path / "two")
    assert (tmp_path / "two/Snakefile").read_text() == "rule"
    told = yaml.safe_load((tmp_path / "two/config/config.yaml").read_text())
    assert told == {"components": [f"{inside}/mine.py"], "mirror": f"{inside}/data"}


def test_running_an_exhibit_gives_its_numbers(drawn, snakemake, monkeypatch, tmp_path):
    calls, _ = snakemake
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREPRO_MIRROR", "data")
    Path("mine").mkdir()
    found = fedrepro.run(KEY, scale="tiny", folder=drawn, cores=3, profile="mine")
    target, own = f"reports/tiny/{KEY}.svg", ["--profile", str(tmp_path / "mine")]
    assert calls == [([*SNAKEMAKE, *own, "--cores", "3", "--", target], str(drawn))]
    assert os.environ["FEDREPRO_MIRROR"] == str(tmp_path / "data")
    assert Path.cwd() == tmp_path
    assert {"method", "metric", "split", "mean"} <= set(found)
    assert (found["metric"] == "accuracy").any()
    assert found.attrs["file"] == str(drawn / target)


def test_files_of_components_are_told_to_this_process_too(drawn, snakemake, monkeypatch):
    Path("config").unlink()  # a link to the repository's, which other tests read
    shutil.copytree(ROOT / "config", "config")
    with Path("config/config.yaml").open("a") as config:
        config.write("components: [mine.py]\n")
    Path("mine.py").write_text("x = 1\n")
    monkeypatch.delenv(component_files.NAMED, raising=False)
    with pytest.raises(FedreproError, match=r"mine\.py has no component"):
        fedrepro.run(KEY, scale="tiny")
    assert component_files.NAMED not in os.environ  # another folder has its own


@pytest.mark.filterwarnings("ignore:pfnm/figure-2a")
def test_what_goes_wrong_is_one_sentence(drawn, snakemake, monkeypatch, tmp_path):
    _, ends = snakemake
    for said, told in (
        ("Error in rule x\nfedrepro: no data\nfedrepro: no data\n", r"svg was not made: no data$"),
        ("fedrepro: a/b is left out: no\nfedrepro: no data\n", r"svg was not made: no data$"),
        (f"fedrepro: {KEY} is left out: no\n", rf"made: {KEY} is left out: no$"),
        ("LockException:\n\n  Error: cannot be locked\n", r"made: LockException: \| Error: cannot"),
    ):
        ends |= {"returncode": 1, "stderr": said}
        with pytest.raises(FedreproError, match=told):
            fedrepro.run(KEY, scale="tiny")
    monkeypatch.setattr(snakemake_in_folder, "find_spec", lambda name: None)
    with pytest.raises(FedreproError, match=r"pip install 'fedrepro\[workflow\]'"):
        fedrepro.run(KEY, scale="tiny")
    with pytest.raises(FedreproError, match=r"has no workflow: call fedrepro\.start"):
        fedrepro.run(KEY, folder=tmp_path / "none")


@pytest.mark.nightly
@pytest.mark.workflow
def test_the_notebook_of_the_documentation_runs(tmp_path, monkeypatch):
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), known)
    text = "".join(line for cell in cells for line in cell["source"])
    assert re.search(r"fedrepro\.run\(", text)
    assert len(known["table"]) > 0
