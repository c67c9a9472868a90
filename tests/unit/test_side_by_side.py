"""docs/own-models.md, word for word: state dicts, one command, a table; and what is refused."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fedrepro.api import NEEDS, LocalModels
from fedrepro.cli import printing
from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.numbers.cost_words import SEEN, megabytes, needs_in_words, times
from fedrepro.stages.user_models.combine import entries
from fedrepro.stages.user_models.model_context import WAYS, ModelContext, ModelFiles, read_context
from fedrepro.stages.user_models.user_files import DataForm, paired_files, read_files, read_inputs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/own-models.md").read_text()
CLIENTS = [f"client{j}.pt" for j in range(5)]
DATA = ["--clients-data", "client*.npz"]


def words(command):
    """A line of the page as a shell cuts it: patterns in quotation marks stay."""
    found = []
    for word in command.split():
        if "*" in word and not word.startswith('"'):
            found += sorted(map(str, Path().glob(word)))
        else:
            found.append(word.strip('"'))
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
    assert set(applied["kind"]) == {"one model", "several models", "control"}
    assert (
        applied.loc[["average", "uniform_ensemble"], "kind"] == ["one model", "several models"]
    ).all()


def test_the_lines_that_the_readme_shows_are_printed(page):
    readme = (ROOT / "README.md").read_text()
    lines = re.search(r"^    method +accuracy .*\n((?:    .*\n)+)", readme, re.M)[1]
    shown = [re.split(r" {2,}", line.strip()) for line in lines.strip().splitlines()]
    printed = [re.split(r" {2,}", line.strip()) for line in page[1].splitlines()]
    assert len(shown) > 3
    assert all(any(row[: len(line)] == line for row in printed) for line in shown)


def test_costs_are_those_of_what_was_sent(page):
    table = table_in(page[0])
    numbers = 64 * 32 + 32 + 32 * 10 + 10
    once = 5 * 4 * numbers
    sent = table["bytes_up"].replace("", "nan").astype(float)
    assert sent["average"] == once
    assert float(table.loc["average", "times_the_models"]) == 1
    # K-FAC: halves of the two factors of both layers
    halves = [n * (n + 1) // 2 for n in (65, 32, 33, 10)]
    assert sent["fedfisher_kfac"] == once + 5 * 4 * sum(halves)
    kfac = table.loc["fedfisher_kfac"]
    assert float(kfac["passes"]) == 1
    assert kfac["sees"].endswith("Kronecker factors of the Fisher information")
    assert float(table.loc["uniform_ensemble", "parameters"]) == 5 * numbers
    assert float(table.loc["local", "bytes_up"]) == 0


def test_settings_are_chosen_where_there_is_something_to_choose_by(page):
    table = table_in(page[0])
    tried = table["settings_tried"].astype(int)
    grid = components("method")["ties"].meta["grid"]
    assert tried["ties"] == np.prod([len(values) for values in grid.values()])
    assert tried["average"] == 1
    assert table.loc["ties", "setting"].startswith("ties")


def test_what_cannot_be_applied_is_a_line_with_why(page):
    out = page[1]
    lines = dict(re.findall(r"^not applied: (\w+) (.*)$", out, re.M))
    assert lines["feddf"] == "needs inputs of other data (--public)"
    assert "trained in a way of its own" in lines["pooled"]
    assert "which no file here holds" in lines["raw"]
    assert not any(line.startswith("failed") for line in lines.values())


def test_models_that_it_writes_are_those_of_the_table(page, here):
    table = table_in(here)
    command = re.findall(r"^    fedrepro (evaluate .*)$", PAGE, re.M)[0]
    status, out, err = said_by(words(command))
    assert status == 0, err
    for name in ("average", "uniform_ensemble"):
        share = 100 * float(table.loc[name, "accuracy"])
        (line,) = re.findall(rf"^│ combined/{name}.pt +│ ([\d.]+) % +│ ([\d.]+)", out, re.M)
        assert float(line[0]) == pytest.approx(share, abs=0.006)
    plain = perceptron(64, 32, 10)
    plain.load_state_dict(torch.load("client0.pt", weights_only=True))
    data = np.load("test.npz")
    with torch.no_grad():
        logits, labels = plain(torch.from_numpy(data["x"])), torch.from_numpy(data["y"])
    right = 100 * float((logits.argmax(1) == labels).float().mean())
    (line,) = re.findall(r"^│ client0.pt +│ ([\d.]+) % +│ ([\d.]+)", out, re.M)
    assert float(line[0]) == pytest.approx(right, abs=0.006)
    assert float(line[1]) == pytest.approx(
        float(nn.functional.cross_entropy(logits, labels)), abs=1e-4
    )


def test_the_table_fits_a_terminal_and_loses_no_letter(here, monkeypatch, only):
    from rich.console import Console

    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, highlight=False)
    monkeypatch.setattr(printing, "console", console)
    only("average", "uniform_ensemble", "pooled")
    assert main(["combine", "--method", "all", "--evaluate", "test.npz", *DATA, *CLIENTS]) == 0
    bare = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    lines = bare.splitlines()
    head = next(place for place, line in enumerate(lines) if "accuracy" in line)
    rows = list(takewhile(str.strip, lines[head : head + 20]))
    assert len(rows) >= 4
    assert all(len(line) <= 80 for line in rows)
    for name in ("MB sent", "weights", "12,050 in 5", "parameter"):
        assert any(name in line for line in rows), name
    assert "sees example counts: parameter average" in lines
    assert "…" not in bare


# ------------------------------------------------------------------------------------- starts


def trained(start, data):
    torch.manual_seed(start)
    network = perceptron(8, 16, 3)
    torch.manual_seed(100 + data)
    x = torch.randn(200, 8)
    y = (x[:, :3] + 0.1 * torch.randn(200, 3)).argmax(1)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    return network.state_dict()


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """Three models of different starts, what each of them started from, and data of each."""
    monkeypatch.chdir(tmp_path)
    for j in range(3):
        torch.save(trained(j, j), f"own{j}.pt")
        x = np.random.default_rng(j).normal(size=(60, 8)).astype(np.float32)
        np.savez(f"own{j}.npz", x=x, y=x[:, :3].argmax(1))
    torch.save(trained(0, 9), "first.pt")
    return [f"own{j}.pt" for j in range(3)]


def test_methods_of_one_start_say_so_unless_one_is_given_or_said(strangers):
    command = ["combine", "fisher_merge", *strangers, "--clients-data", "own*.npz", "--out"]
    for method, more, told in (
        ("fisher_merge", [], True), ("average", [], True), ("average", ["--same-start"], False),
        ("average", ["--start", "first.pt"], False), ("uniform_ensemble", [], False),
    ):  # fmt: skip
        status, out, _ = said_by(["combine", method, *command[2:], f"{method}.pt", *more])
        assert status == 0
        assert (f"note: '{method}' combines units in their places" in out) == told
    start = ["combine", "ties", *strangers, "--out", "b.pt"]
    assert "needs the common start (--start)" in said_by(start)[2]
    assert said_by([*start, "--start", "first.pt"])[0] == 0


# -------------------------------------------------------------------------- what may be looked at


def test_what_is_measured_on_chooses_nothing(here, only):
    """With other labels of the same examples every setting and every model stays as it was."""
    ground, examples, _ = read_context(
        ModelFiles(
            [Path(name) for name in CLIENTS],
            data=[Path(f"client{j}.npz") for j in range(5)],
            validation=[Path("validation.npz")],
            evaluate=Path("test.npz"),
            start=Path("start.pt"),
        )
    )
    only("ties", "fisher_merge", "best_client", "task_arithmetic")
    found = list(entries(ground, examples))
    other = list(entries(ground, replace(examples, targets=examples.targets.flip(0))))
    for one, two in zip(found, other, strict=True):
        assert one.setting == two.setting
        assert one.numbers["accuracy"] != two.numbers["accuracy"]
        for name, value in one.made.tensors.items():
            assert np.array_equal(value, two.made.tensors[name])


def test_a_model_that_overflows_gets_no_accuracy(odd, only):
    only("average")
    shutil.copy("huge.pt", "huge2.pt")
    models = [Path("huge.pt"), Path("huge2.pt")]
    ground, examples, _ = read_context(ModelFiles(models, evaluate=Path("test.npz")))
    (found,) = entries(ground, examples)
    assert "'average' gives scores that are not finite to 400 of 400 examples" in found.why
    assert not found.numbers


def test_without_more_than_models_there_are_ensembles(here, monkeypatch):
    states = [torch.load(name, weights_only=True) for name in CLIENTS]
    ground = ModelContext.of(LocalModels.from_state_dicts(states))
    known = components("method")
    assert ground.lacking(known["uniform_ensemble"]) == ground.lacking(known["average"]) == ""
    for name, way in (("pfnm", "--labels"), ("fens", "--validation"),
                      ("regmean", "--clients-data"), ("ties", "--start")):  # fmt: skip
        assert way in ground.lacking(known[name])
    assert set(WAYS) <= set(NEEDS)
    assert set(SEEN) == set(NEEDS)


def test_words_of_costs():
    assert needs_in_words({"label_counts", "client_answers"}, "moments") == "label counts; moments"
    assert needs_in_words(()) == "weights only"
    assert (megabytes(1.5e6), megabytes(2.5e9), times(3.0, 1.5)) == ("1.5 MB", "2.5 GB", "2.0 ×")
    assert times(1.0, 0.0) == ""


# ------------------------------------------------------------------------------ what is refused


@pytest.fixture
def odd(here):
    """Files with faults beside those of the page."""
    x = np.zeros((4, 64), np.float32)
    y = np.arange(4)
    np.savez("narrow.npz", x=x[:, :60], y=y)
    np.savez("high.npz", x=x, y=y + 10)
    np.savez("words.npz", x=x, y=np.array(list("abcd")))
    np.savez("image.npz", x=np.zeros((4, 4, 16), np.float32), y=y)
    Path("data.txt").write_text("1")
    torch.save(perceptron(64, 8, 10).state_dict(), "slim.pt")
    torch.save(perceptron(63, 32, 10).state_dict(), "short.pt")
    torch.save({"fc.weight": torch.ones(10, 64), "fc.bias": torch.ones(10)}, "flat.pt")
    own = torch.load("client0.pt", weights_only=True)
    torch.save({name: 1e38 * value for name, value in own.items()}, "huge.pt")
    own["0.bias"][3] = torch.nan
    torch.save(own, "spoiled.pt")
    Path("there").mkdir(exist_ok=True)
    Path("wrong.csv").write_text("\n".join([",".join("1" * 10)] * 5))
    for name in ("pipe.csv", "pipe.npz"):
        if not Path(name).exists():
            os.mkfifo(name)
    return here


ALL = ["combine", "--method", "all", *CLIENTS]
ON = ["--evaluate", "test.npz"]
FAULTS = {
    "nothing to measure on": ([*ALL], "say on which data by --evaluate"),
    "no such data": ([*ALL, "--evaluate", "gone.npz"], "gone.npz cannot be read"),
    "other inputs": ([*ALL, "--evaluate", "narrow.npz"], "of shape 60, and the networks take 64"),
    "other classes": ([*ALL, "--evaluate", "high.npz"], "from 0 to 9"),
    "few words": ([*ALL, "--evaluate", "words.npz"], "4 classes that are named by words (a, b, c"),
    "no data": ([*ALL, "--evaluate", "data.txt"], "neither .csv nor .npz"),
    "a pipe": ([*ALL, "--evaluate", "pipe.csv"], "cannot read pipe.csv: it is a pipe"),
    "a pipe of arrays": ([*ALL, "--evaluate", "pipe.npz"], "cannot read pipe.npz: it is a pipe"),
    "a folder": ([*ALL, "--evaluate", "there"], "neither .csv nor .npz"),
    "missing model": ([*ALL, "gone.pt", *ON], "gone.pt is missing"),
    "other shapes": ([*ALL, "short.pt", *ON], "only networks of one architecture"),
    "other keys": ([*ALL, "flat.pt", *ON], "only networks of one architecture"),
    "not a number": ([*ALL, "spoiled.pt", *ON], "'0.bias' has a number that is not finite"),
    "other start": ([*ALL, *ON, "--start", "slim.pt"], "only networks of one architecture"),
    "few clients' data": ([*ALL, *ON, DATA[0], "client0.npz"], "names 1 files for 5 models"),
    "no clients' data": ([*ALL, *ON, "--clients-data", "gone*.npz"], "no file fits 'gone*.npz'"),
    "two validations": ([*ALL, *ON, *["--validation", "test.npz"] * 2], "give one for all, or"),
    "other counts": ([*ALL, *ON, *DATA, "--labels", "wrong.csv"], "leave out --labels"),
    "a folder that is there": ([*ALL, *ON, "--out", "there"], "there is there already"),
    "settings of all": ([*ALL, *ON, "--set", "a=1"], "--set changes one method"),
    "no out": (["combine", "average", *CLIENTS], "say by --out which file to write"),
    "divided by nothing": ([*ALL, *ON, "--divide", "0"], "must be a number above 0"),
    "no training": ([*ALL, *ON, "--training", "adm"], "did you mean 'adam'"),
    "a control": (["combine", "local", *CLIENTS, "--out", "x.pt"], "is control"),
    "evaluate other inputs": (["evaluate", *CLIENTS, "--data", "narrow.npz"], "networks take 64"),
    "evaluate nothing": (["evaluate", "gone.pt", "--data", "test.npz"], "gone.pt is missing"),
    "evaluate what overflows": (["evaluate", "huge.pt", "--data", "test.npz"],
                                "gives scores that are not finite to 400 of 400 examples"),
    "evaluate no model": (["evaluate", "data.txt", "--data", "test.npz"], "cannot be read as"),
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


def test_other_forms_of_the_same_data_are_read_alike(here):
    data = np.load("test.npz")
    pixels = (16 * data["x"]).round().astype(np.uint8)
    np.savez("pixels.npz", x=pixels.reshape(-1, 8, 8), y=data["y"])
    header = ",".join(["label", *(f"p{k}" for k in range(64))])
    rows = [",".join(map(str, [k, *own])) for k, own in zip(data["y"], pixels, strict=True)]
    Path("pixels.csv").write_text("\n".join([header, *rows]))
    said = []
    for name in ("pixels.npz", "pixels.csv"):
        command = ["evaluate", "client0.pt", "--data", name, "--divide", "16"]
        status, out, err = said_by(command)
        assert status == 0, err
        said.append(out)
    assert said[0] == said[1]
    assert said[0] == said_by(["evaluate", "client0.pt", "--data", "test.npz"])[1]
    assert "taken as they are" in said_by(["evaluate", "client0.pt", "--data", "pixels.npz"])[1]


def test_a_client_may_have_one_class_and_classes_may_have_names(here):
    """Names are outputs in their order, over all files together."""
    data = np.load("client0.npz")
    one = data["y"] == data["y"][0]
    form = DataForm((64,), 10)
    found, _ = read_files({"clients": [Path("client0.npz")], "validation": []}, form)
    np.savez("one.npz", x=data["x"][one], y=data["y"][one])
    alone, _ = read_files({"clients": [Path("one.npz")]}, form)
    assert set(alone["clients"][0].targets.tolist()) == {int(data["y"][0])}
    names = np.array(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )
    np.savez("named.npz", x=data["x"], y=names[data["y"]])
    every = {"clients": [Path("named.npz")], "validation": [Path("all.npz")]}
    np.savez("all.npz", x=data["x"][:10], y=names)
    told, notes = read_files(every, form)
    order = np.argsort(np.argsort(names))
    wanted = order[found["clients"][0].targets.numpy()]
    assert told["clients"][0].targets.tolist() == wanted.tolist()
    assert "eight" in notes[0]


def test_inputs_of_the_server_need_no_labels(here):
    data, form = np.load("client0.npz"), DataForm((64,), 10)
    np.savez("bare.npz", x=data["x"])
    header = ",".join(f"p{k}" for k in range(64))
    Path("bare_inputs.csv").write_text(
        "\n".join([header, *(",".join(map(str, row)) for row in data["x"].tolist())])
    )
    for name in ("bare.npz", "bare_inputs.csv"):
        found = read_inputs(Path(name), form)
        np.testing.assert_allclose(found.inputs.numpy(), data["x"], atol=1e-6)
    with pytest.raises(FedreproError, match="unknown array 'y'"):
        read_files({"clients": [Path("bare.npz")]}, form)


@pytest.fixture
def dozen(tmp_path, monkeypatch):
    """Twelve models, and data under the same names and under others."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    Path("d[1]").mkdir()
    for j in range(12):
        torch.save({"weight": torch.randn(3, 4, generator=generator), "bias": torch.zeros(3)},
                   f"c{j}.pt")  # fmt: skip
        inputs = torch.randn(20, 4, generator=generator) * (1 + j)
        np.savez(f"c{j}.npz", x=inputs.numpy(), y=np.arange(20) % 3)
        np.savez(f"d[1]/d{j}.npz", x=inputs.numpy(), y=np.arange(20) % 3)
    return tmp_path


def test_data_of_clients_are_paired_with_the_models_that_they_are_named_like(dozen):
    """Patterns sort c10 before c2, and the models come as they are named."""
    models = [f"c{j}.pt" for j in range(12)]
    command = ["combine", "regmean", *models, "--out"]
    by_name = ",".join(f"c{j}.npz" for j in range(12))
    for out, data in (("names.pt", by_name), ("pattern.pt", "c*.npz")):
        status, said, err = said_by([*command, out, "--clients-data", data])
        assert status == 0, err
        assert "--clients-data: paired with the models by name" in said
    assert Path("names.pt").read_bytes() == Path("pattern.pt").read_bytes()


@pytest.mark.parametrize("option", ["--clients-data", "--validation"])
def test_files_of_clients_with_other_names_are_refused_unless_in_order(dozen, option):
    models = [Path(f"c{j}.pt") for j in range(12)]
    given = [word for j in range(12) for word in (option, f"d[1]/d{j}.npz")]
    if option == "--clients-data":
        given = [option, "d[1]/d*.npz"]
    method = "regmean" if option == "--clients-data" else "uniform_ensemble"
    command = ["combine", method, *map(str, models), *given, "--out", "a.pt"]
    status, _, err = said_by(command)
    second = "d[1]/d1.npz of c1.pt"
    assert status == 2
    assert f"the names of {option} do not say which file belongs to which model" in err
    assert f"if this is right: d[1]/d0.npz of c0.pt, {second}" in err
    assert not Path("a.pt").exists()
    status, said, err = said_by([*command, "--in-order"])
    assert status == 0, err
    assert f"{option}: d[1]/d0.npz of c0.pt, {second}" in said


def test_files_in_a_folder_of_each_client_are_paired_by_folder(tmp_path):
    models = [tmp_path / name / "model.pt" for name in "abc"]
    data = [tmp_path / name / "data.npz" for name in "cab"]
    found, _ = paired_files("--clients-data", data, models, False)
    assert found == [tmp_path / name / "data.npz" for name in "abc"]


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
    files = ModelFiles(
        paths,
        data=[Path(f"client{j}.npz") for j in range(count)],
        evaluate=Path("test.npz"),
        one_start=True,
        in_order=True,
        validation=[Path("validation.npz")],
        public=Path("validation.npz"),
    )
    ground, examples, _ = read_context(files)
    found = {entry.item.name: entry for entry in entries(ground, examples)}
    assert not [entry.why for entry in found.values() if "fault" in entry.why]
    if biased:
        matched = found["c2m3"].made.tensors
        assert all(np.array_equal(matched[k], v) for k, v in ground.models.tensors.items())
    else:
        assert "GEMS merges units with their biases" in found["gems_neural"].why


def test_a_write_that_fails_leaves_no_folder(here, monkeypatch, only):
    only("average")

    def broken(*_):
        raise FedreproError("the disk is full")

    monkeypatch.setattr("fedrepro.stages.user_models.combine.write_text", broken)
    before = sorted(Path().rglob("*"))
    assert said_by([*ALL, *ON, *DATA, "--out", "half"])[0] == 2
    assert sorted(Path().rglob("*")) == before
