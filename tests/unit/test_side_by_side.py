"""docs/own-models.md, word for word: state dicts, one command, a table; and what is refused."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fedrepro.api import NEEDS, LocalModels
from fedrepro.cli.main import main
from fedrepro.core.registry import components
from fedrepro.numbers.cost_and_needs_words import SEEN, megabytes, needs_in_words
from fedrepro.stages.user_models import model_and_data_files as model_files
from fedrepro.stages.user_models.combine import entries

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/own-models.md").read_text()
CLIENTS = [f"client{j}.pt" for j in range(5)]
DATA = ["--clients-data", "client*.npz"]


def words(command):
    """A line of the page as a shell cuts it: patterns in quotation marks stay."""
    found = []
    for word in command.split():
        pattern = "*" in word and not word.startswith('"')
        found += sorted(map(str, Path().glob(word))) if pattern else [word.strip('"')]
    return found


def said_by(command):
    """Exit status, and what a command says on both ways."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(command)
    return status, out.getvalue(), err.getvalue()


# fewer steps than by default, of methods that would take most of the time
SHORT = {
    "dense": {"epochs": (2,), "generator_steps": (2,)},
    "fens": {"rounds": (20,)},
    "ot_fusion": {"sweeps": (1,)},
    "distillation": {"units": (20,)},
    "matched_kfac": {"steps": (5,)},
    "fedfisher_kfac": {"steps": (5, 500)},
    "fedfisher_diagonal": {"steps": (20,)},
}


def shortened(kind):
    found = dict(components(kind))
    for name, grid in SHORT.items():
        found[name] = replace(found[name], meta={**found[name].meta, "grid": grid})
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What the page leaves in a folder, and what its command prints."""
    folder = tmp_path_factory.mktemp("own")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    command, _ = re.findall(r"^    fedrepro (.*)$", PAGE, re.M)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrepro.stages.user_models.combine.components", shortened)
        exec(code, {})  # the page's own text
        status, out, err = said_by(words(command))
    assert status == 0, err
    return folder, out


@pytest.fixture
def here(page, monkeypatch):
    monkeypatch.chdir(page[0])
    return page[0]


@pytest.fixture
def only(monkeypatch):
    """Leaves these methods alone to be combined, and some that are given."""

    def restrict(*names, **others):
        some = {name: components("method")[name] for name in names} | others
        monkeypatch.setattr("fedrepro.stages.user_models.combine.components", lambda _: some)

    return restrict


def perceptron(*widths):
    parts = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def table_in(folder):
    return pd.read_csv(folder / "combined/table.csv", keep_default_na=False).set_index("method")


def test_the_table_has_every_method_that_combines_trained_models(page):
    table = table_in(page[0])
    kinds = {name: item.meta["kind"] for name, item in components("method").items()}
    assert set(table.index) == {n for n, kind in kinds.items() if kind in ("one_shot", "control")}
    applied = table[table["not_applied"] == ""]
    wanted = {
        *("average", "fisher_merge", "regmean", "regmean_plus", "fedfisher_kfac", "fedlpa"),
        *("task_arithmetic", "ties", "weight_matching", "ot_fusion", "pfnm", "c2m3", "dense"),
        *("uniform_ensemble", "weighted_ensemble", "fens", "best_client", "local", "majority"),
    }
    assert wanted <= set(applied.index)
    accuracy = applied["accuracy"].astype(float)
    assert (accuracy.diff().dropna() <= 0).all()  # the best first
    assert accuracy["weighted_ensemble"] > accuracy["majority"]
    assert applied["kind"][["average", "local"]].tolist() == ["one_shot", "control"]
    # settings are chosen where there is something to choose by
    tried = table["settings_tried"].astype(int)
    grid = components("method")["ties"].meta["grid"].values()
    assert (tried["ties"], tried["average"]) == (np.prod([len(values) for values in grid]), 1)
    assert table.loc["ties", "setting"].startswith("ties")


def test_the_lines_that_the_readme_shows_are_printed(page):
    readme = (ROOT / "README.md").read_text()
    lines = re.search(r"^    method +accuracy .*\n((?:    .*\n)+)", readme, re.M)[1]
    shown = [re.split(r" {2,}", line.strip()) for line in lines.strip().splitlines()]
    printed = [re.split(r" {2,}", line.strip()) for line in page[1].splitlines()]
    assert len(shown) > 3
    assert all(any(row[: len(line)] == line for row in printed) for line in shown)
    labels = {row[0] for row in printed}  # variants of a method are told apart
    assert {"PFNM (pfnm)", "PFNM (pfnm_sized)", "OT fusion"} <= labels


def test_costs_are_those_of_what_was_sent_and_what_cannot_be_applied_says_why(page):
    table = table_in(page[0])
    numbers = 64 * 32 + 32 + 32 * 10 + 10
    once = 5 * 4 * numbers
    sent = table["bytes_up"].replace("", "nan").astype(float)
    # K-FAC: halves of the two factors of both layers
    halves = sum(n * (n + 1) // 2 for n in (65, 32, 33, 10))
    assert sent["average"] == once
    assert (sent["fedfisher_kfac"], sent["local"]) == (once + 5 * 4 * halves, 0)
    assert float(table.loc["fedfisher_kfac", "passes"]) == 1
    seen = table.loc["fedfisher_kfac", "sees"]
    assert seen.endswith("Kronecker factors of the Fisher information")
    assert float(table.loc["uniform_ensemble", "parameters"]) == 5 * numbers
    lines = dict(re.findall(r"^not applied: (\w+) (.*)$", page[1], re.M))
    assert lines["feddf"] == "needs inputs of other data (--public)"
    assert "trained in a way of its own" in lines["pooled"]
    assert "which no file here holds" in lines["raw"]
    assert not any(line.startswith("failed") for line in lines.values())


def test_models_that_it_writes_are_those_of_the_table(here):
    table = table_in(here)
    command = re.findall(r"^    fedrepro (evaluate .*)$", PAGE, re.M)[0]
    status, out, err = said_by(words(command))
    assert status == 0, err
    found = {
        name: (float(share), float(loss))
        for name, share, loss in re.findall(r"^│ (\S+) +│ ([\d.]+) % +│ ([\d.]+)", out, re.M)
    }
    for name in ("average", "uniform_ensemble"):
        share = 100 * float(table.loc[name, "accuracy"])
        assert found[f"combined/{name}.pt"][0] == pytest.approx(share, abs=0.006)
    one = ["combine", "fens+rounds~5", "client0.pt", "--validation", "validation.npz", "--out"]
    assert said_by([*one, "one.pt"])[0] == 0  # which has a gate although it has one network
    assert "│ 2,630   │" in said_by(["evaluate", "one.pt", "--data", "test.npz"])[1]
    plain = perceptron(64, 32, 10)
    plain.load_state_dict(torch.load("client0.pt", weights_only=True))
    data = np.load("test.npz")
    with torch.no_grad():
        logits, labels = plain(torch.from_numpy(data["x"])), torch.from_numpy(data["y"])
    right = 100 * float((logits.argmax(1) == labels).float().mean())
    loss = float(nn.functional.cross_entropy(logits, labels))
    assert found["client0.pt"] == (pytest.approx(right, abs=0.006), pytest.approx(loss, abs=1e-4))
    # a csv of the same examples gives the same
    header = ",".join(["label", *(f"p{k}" for k in range(64))])
    rows = [",".join(map(str, [k, *own])) for k, own in zip(data["y"], data["x"], strict=True)]
    Path("test.csv").write_text("\n".join([header, *rows]))
    command = ["evaluate", "client0.pt", "--data"]
    assert said_by([*command, "test.npz"]) == said_by([*command, "test.csv"])


def test_what_is_measured_on_chooses_nothing(here, only):
    """With other labels of the same examples every setting and every model stays as it was."""
    files = {"data": [Path(f"client{j}.npz") for j in range(5)], "start": Path("start.pt")}
    files |= {"validation": Path("validation.npz"), "evaluate": Path("test.npz")}
    ground, examples, _ = model_files.read_context(
        model_files.ModelFiles(list(map(Path, CLIENTS)), **files)
    )
    only("ties", "fisher_merge", "best_client", "task_arithmetic")
    other = replace(examples, targets=examples.targets.flip(0))
    both = (entries(ground, of) for of in (examples, other))
    for (one, made), (two, again) in zip(*both, strict=True):
        assert one["setting"] == two["setting"]
        assert one["accuracy"] != two["accuracy"]
        for name, value in made.tensors.items():
            assert np.array_equal(value, again.tensors[name])


def test_what_is_lacking_is_an_option_and_every_need_and_cost_has_words(here):
    states = [torch.load(name, weights_only=True) for name in CLIENTS]
    ground = model_files.ModelContext.of(LocalModels.from_state_dicts(states))
    ways = {"uniform_ensemble": "", "average": "", "pfnm": "--labels", "fens": "--validation",
            "regmean": "--clients-data", "ties": "--start"}  # fmt: skip
    for name, way in ways.items():
        lacking = ground.lacking(components("method")[name])
        assert way in lacking if way else not lacking
    assert set(model_files.WAYS) <= set(NEEDS) == set(SEEN)
    assert needs_in_words({"label_counts", "client_answers"}, "moments") == "label counts; moments"
    assert needs_in_words(()) == "weights only"
    assert (megabytes(1.5e6), megabytes(2.5e9)) == ("1.5 MB", "2.5 GB")


@pytest.fixture
def odd(here):
    """Files with faults among those of the page, and data under other names."""
    x, y = np.zeros((4, 64), np.float32), np.arange(4)
    np.savez("narrow.npz", x=x[:, :60], y=y)
    np.savez("high.npz", x=x, y=y + 10)
    np.savez("words.npz", x=x, y=np.array(list("abcd")))
    Path("data.txt").write_text("1")
    torch.save(perceptron(64, 8, 10).state_dict(), "slim.pt")
    for j in range(5):
        shutil.copy(f"client{j}.npz", f"d{j}.npz")
    Path("there").mkdir(exist_ok=True)
    return here


ALL = ["combine", "all", *CLIENTS]
ON = ["--evaluate", "test.npz"]
FAULTS = {
    "nothing to measure on": ([*ALL], "say on which data by --evaluate"),
    "other classes": ([*ALL, "--evaluate", "high.npz"], "from 0 to 9"),
    "words": ([*ALL, "--evaluate", "words.npz"], "has the class 'a': number classes as the netw"),
    "no data": ([*ALL, "--evaluate", "data.txt"], "neither .csv, with a column label, nor .npz"),
    "other start": ([*ALL, *ON, "--start", "slim.pt"], "only networks of one architecture"),
    "few clients' data": ([*ALL, *ON, DATA[0], "client0.npz"], "names 1 files for 5 models"),
    "other names": ([*ALL, *ON, DATA[0], "d*.npz"], "the names of --clients-data do not say"),
    "counts twice": ([*ALL, *ON, *DATA, "--labels", "c.csv"], "the counts of --labels: leave out"),
    "a folder that is there": ([*ALL, *ON, "--out", "there"], "there is there already"),
    "no out": (["combine", "average", *CLIENTS], "say by --out which file to write"),
    "evaluate other inputs": (["evaluate", *CLIENTS, "--data", "narrow.npz"],
                              "of shape 60, and the networks take 64"),
    "too few networks": (["evaluate", *CLIENTS, "--data", "test.npz", "--model", "mlp,cnn"],
                         "names 2 networks for 5 files"),
}  # fmt: skip


@pytest.mark.usefixtures("within_a_minute")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence_and_leaves_nothing_behind(fault, odd):
    before = sorted(odd.rglob("*"))
    command, sentence = FAULTS[fault]
    status, _, err = said_by(command)
    assert status == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(odd.rglob("*")) == before


def test_inputs_of_the_server_need_no_labels(here):
    x = np.load("client0.npz")["x"]
    np.savez("bare.npz", x=x)
    lines = [",".join(f"p{k}" for k in range(64)), *(",".join(map(str, row)) for row in x.tolist())]
    Path("bare_inputs.csv").write_text("\n".join(lines))
    for name in ("bare.npz", "bare_inputs.csv"):
        found = model_files.read_examples(Path(name), (64,), 10, labelled=False).inputs.numpy()
        np.testing.assert_allclose(found, x, atol=1e-6)


MODELS = [Path(f"c{j}.pt") for j in range(12)]


@pytest.mark.parametrize(
    ("models", "files", "wanted"),
    [
        # patterns sort c10 before c2, and the models come as they are named
        (MODELS, sorted(f"c{j}.npz" for j in range(12)), [f"c{j}.npz" for j in range(12)]),
        ([Path(name, "model.pt") for name in "abc"], [f"{name}/data.npz" for name in "cab"],
         [f"{name}/data.npz" for name in "abc"]),
    ],
)  # fmt: skip
def test_data_of_clients_are_paired_with_the_models_that_they_are_named_like(models, files, wanted):
    found = model_files.paired(list(map(Path, files)), models)
    assert found == list(map(Path, wanted))


def test_a_method_that_fails_costs_its_own_row_alone(here, only):
    def broken(clients, info, *, rng):
        return {}["no such key"]

    only("uniform_ensemble", average=replace(components("method")["average"], fn=broken))
    status, out, err = said_by([*ALL, *ON, *DATA])
    assert status == 0, err
    (why,) = re.findall(r"^not applied: average failed: (.*)$", out, re.M)
    assert "fault of the program (KeyError: 'no such key', test_side_by_side.py line" in why
    assert "U-Ens" in out


@pytest.mark.parametrize("biased", [True, False])
def test_every_method_takes_one_model_and_models_without_biases_or_says_why(
    here, monkeypatch, biased
):
    """One model comes back as it is from what matches units; nothing is a fault of the program."""
    monkeypatch.setattr("fedrepro.stages.user_models.combine.components", shortened)
    count = 1 if biased else 3
    paths = [Path(f"client{j}.pt") for j in range(count)]
    if not biased:
        for j, path in enumerate(paths):
            state = torch.load(path, weights_only=True)
            paths[j] = Path(f"bare{j}.pt")
            torch.save({k: v for k, v in state.items() if k.endswith("weight")}, paths[j])
    data, held = [Path(f"{path.stem}.npz") for path in paths], Path("validation.npz")
    if not biased:
        for j, path in enumerate(data):
            shutil.copy(f"client{j}.npz", path)
    more = {"evaluate": Path("test.npz"), "validation": held, "public": held}
    files = model_files.ModelFiles(paths, data=data, **more)
    ground, examples, _ = model_files.read_context(files)
    found = {row["method"]: (row["not_applied"], made) for row, made in entries(ground, examples)}
    assert not [why for why, _ in found.values() if "fault" in why]
    if biased:
        matched = found["c2m3"][1].tensors
        assert all(np.array_equal(matched[k], v) for k, v in ground.models.tensors.items())
    else:
        assert "GEMS merges units with their biases" in found["gems_neural"][0]
