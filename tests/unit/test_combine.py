"""Models trained by plain PyTorch elsewhere: read, combined, and given back to plain PyTorch."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn

import fedrepro
from fedrepro.api import ClientInfo, LocalModels
from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.networks.predict import network_of, probabilities
from fedrepro.stages.user_models.model_and_data_files import read_state
from fedrepro.training.training_examples import Examples

ROOT = Path(__file__).parents[2]
CLIENTS, UNITS, CLASSES = 5, 20, 10


def network(units: int = UNITS) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, CLASSES))


@pytest.fixture(scope="module")
def digits():
    inputs, labels = load_digits(return_X_y=True)
    return torch.from_numpy((inputs / 16).astype(np.float32)), torch.from_numpy(labels)


@pytest.fixture(scope="module")
def trained(digits):
    """Five clients' state dicts, trained as a PyTorch tutorial would, and their label counts."""
    torch.manual_seed(0)
    inputs, labels = digits
    states, counts = [], []
    for rows in torch.randperm(len(labels)).tensor_split(CLIENTS):
        own = network()
        optimiser = torch.optim.Adam(own.parameters(), lr=0.01)
        for _ in range(30):
            for batch in rows.split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(own(inputs[batch]), labels[batch]).backward()
                optimiser.step()
        states.append(own.state_dict())
        counts.append(np.bincount(labels[rows], minlength=CLASSES))
    return states, np.stack(counts)


@pytest.fixture
def files(trained, tmp_path, monkeypatch):
    """The same as files in the working folder: client0.pt … client4.pt and counts.csv."""
    monkeypatch.chdir(tmp_path)
    states, counts = trained
    for place, state in enumerate(states):
        torch.save(state, f"client{place}.pt")
    rows = [f"client{place}," + ",".join(map(str, row)) for place, row in enumerate(counts)]
    header = ",".join(["client", *map(str, range(CLASSES))])
    (tmp_path / "counts.csv").write_text("\n".join([header, *rows]) + "\n")
    return [f"client{place}.pt" for place in range(CLIENTS)]


def combined(*words, out="combined.pt"):
    """The file that the command writes."""
    assert main(["combine", *words, "--out", out]) == 0
    return Path(out).read_bytes()


def test_models_of_plain_pytorch_are_combined_as_the_pipeline_combines_its_own(trained, digits):
    states, counts = trained
    inputs, labels = digits
    models = LocalModels.from_state_dicts(states, label_counts=counts)
    for layer, key in enumerate("02"):
        weights, biases = models.tensors[f"weight{layer}"], models.tensors[f"bias{layer}"]
        assert np.array_equal(weights, [state[f"{key}.weight"].T.numpy() for state in states])
        assert np.array_equal(biases, [state[f"{key}.bias"].numpy() for state in states])
    made = fedrepro.combine(models, "pfnm", sigma2=0.1)
    info = ClientInfo(training=components("training")["adam"].spec(), label_counts=counts)
    wanted = components("method")["pfnm"].fn(models, info, rng=RngKey(0, 0), sigma2=0.1)
    assert set(made.tensors) == set(wanted.tensors)
    assert all(np.array_equal(made.tensors[key], value) for key, value in wanted.tensors.items())
    plain = network(made.tensors["bias0"].shape[1])
    plain.load_state_dict(made.state_dict())
    with torch.no_grad():
        found = torch.softmax(plain(inputs), 1)
    ours = network_of(made.model, (64,), CLASSES)
    examples = Examples(inputs, torch.zeros(len(inputs)))
    assert torch.allclose(found, probabilities(ours, made.tensors, None, examples), atol=1e-6)
    assert (found.argmax(1) == labels).float().mean() > 0.8


def test_rows_of_counts_are_named(files):
    """Shells sort client10 before client2; names leave no doubt."""
    lines = Path("counts.csv").read_text().splitlines()
    Path("turned.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]))
    turned = [[line[0], *line[:0:-1]] for line in (row.split(",") for row in lines)]
    Path("classes.csv").write_text("\n".join(map(",".join, turned)))
    Path("tabs.csv").write_text(Path("counts.csv").read_text().replace(",", "\t"))
    wanted = combined("pfnm", *files, "--labels", "counts.csv")
    for name in ("turned", "tabs", "classes"):
        assert combined("pfnm", *files, "--labels", f"{name}.csv") == wanted


def test_no_file_that_is_read_is_written(files, capsys):
    Path("link.pt").symlink_to("client1.pt")
    Path("counts.pt").write_bytes(Path("counts.csv").read_bytes())
    before = {path: path.read_bytes() for path in Path().iterdir()}
    for out in ("client0.pt", "link.pt", "counts.pt"):
        assert main(["combine", "average", *files, "--labels", "counts.pt", "--out", out]) == 2
        assert f"cannot write {out}: this command reads it" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in Path().iterdir()}


def test_files_have_the_form_that_their_names_say(files):
    words = ["average", "--labels", "counts.csv"]
    wanted = combined(*words, *files, out="a.pt")
    combined(*words, *files, out="a.safetensors")
    made, other = torch.load("a.pt", weights_only=True), load_file("a.safetensors")
    assert set(other) == set(made)
    assert all(torch.equal(other[k], v) for k, v in made.items())
    for place, name in enumerate(files):  # the same models in the other form give the same model
        save_file(torch.load(name, weights_only=True), f"client{place}.safetensors")
    assert combined(*words, *[f"client{place}.safetensors" for place in range(CLIENTS)]) == wanted
    state = {f"{k}.weight": torch.ones(4, 4) for k in (0, 2, 4, 6, 8, 10)}
    save_file(state, "deep.safetensors")
    assert list(read_state(Path("deep.safetensors"))) == list(state)


def test_sizes_are_enough_where_clients_are_weighed_and_without_them_all_weigh_the_same(
    trained, files, capsys
):
    sizes = [f"client{place},{row.sum()}" for place, row in enumerate(trained[1])]
    sizes[0] = "client0,9000"
    Path("sizes.csv").write_text("\n".join(["client,examples", *sizes]))
    share = np.array([9000, *trained[1].sum(1)[1:]], float)
    given = (["--labels", "sizes.csv"], share, False), ([], np.ones(CLIENTS), True)
    for table, weights, note in given:
        combined("average", *files, *table)
        assert ("all weigh the same" in capsys.readouterr().out) == note
        made = torch.load("combined.pt", weights_only=True)
        wanted = sum(w * s["0.bias"].numpy() for w, s in zip(weights, trained[0], strict=True))
        np.testing.assert_allclose(made["0.bias"], wanted / weights.sum(), atol=1e-6)
    assert main(["combine", "pfnm", *files, "--labels", "sizes.csv", "--out", "p.pt"]) == 2
    assert "(--labels, a row per client and a column per class" in capsys.readouterr().err
    models = LocalModels.from_state_dicts(trained[0])
    with pytest.warns(UserWarning, match="all weigh the same"):
        fedrepro.combine(models, "average")


def test_a_client_without_examples_counts_for_nothing(files):
    lines = Path("counts.csv").read_text().splitlines()
    lines[1] = ",".join(["client0", *"0" * CLASSES])
    Path("none.csv").write_text("\n".join(lines))
    for models, name in ((files, "none"), (files[1:], "less")):
        combined("average", *models, "--labels", "none.csv", out=f"{name}.pt")
    found, wanted = (torch.load(f"{name}.pt", weights_only=True) for name in ("none", "less"))
    assert all(torch.allclose(found[key], value, atol=1e-6) for key, value in wanted.items())


@pytest.mark.parametrize("part", ["tensors", "weights"])
def test_a_model_that_is_not_finite_is_refused(trained, part):
    models = LocalModels.from_state_dicts(trained[0])
    method = components("method")["uniform_ensemble"].spec()

    def spoiled(*given, **values):
        made = method.component.fn(*given, **values)
        first = {name: np.full_like(value, np.inf) for name, value in made.tensors.items()}
        odd = {"tensors": first, "weights": np.full((CLIENTS, CLASSES), np.nan)}
        return replace(made, **{part: odd[part]})

    odd = replace(method, component=replace(method.component, fn=spoiled))
    fedrepro.combine(models, method)
    with pytest.raises(FedreproError, match="numbers that are not finite"):
        fedrepro.combine(models, odd)


def test_a_mixture_is_kept_with_its_weights(trained, files):
    combined("weighted_ensemble", *files, "--labels", "counts.csv")
    kept = torch.load("combined.pt", weights_only=True)
    for own, state in zip(kept["state_dicts"], trained[0], strict=True):
        assert all(torch.equal(own[key], state[key]) for key in state)
    assert np.allclose(kept["weights"], trained[1] / trained[1].sum(0))
    models = LocalModels.from_state_dicts(trained[0])
    with pytest.raises(FedreproError, match="mixture of 5 networks"):
        fedrepro.combine(models, "uniform_ensemble").state_dict()
    with pytest.raises(FedreproError, match="one with a gate, which no single state dict holds"):
        replace(models.alone(0), gate={"weight0": np.eye(3)}).state_dict()


def test_the_page_says_what_works(trained, files, capsys):
    """docs/combine.md, word for word: the command, and the block in Python."""
    page = (ROOT / "docs/combine.md").read_text()
    (command,) = re.findall(r"^    fedrepro (combine .*)$", page, re.M)
    words = [sorted(map(str, Path().glob(w))) if "*" in w else [w] for w in command.split()]
    assert main([part for word in words for part in word]) == 0
    said = capsys.readouterr().out
    assert "read as mlp+hidden~20 on examples of shape 64 with 10 classes, 5 clients" in said
    assert "layers in the order 0, 2, ReLU between them" in said
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    torch.save(torch.from_numpy(trained[1]), "counts.pt")
    names: dict[str, object] = {}
    exec(code, names)  # the page's own text
    state = torch.load("global.pt", weights_only=True)
    assert all(torch.equal(state[k], v) for k, v in names["network"].state_dict().items())


def test_names_and_square_layers_come_back_as_they_were():
    """The average of equal networks is that network: a square weight is not turned around."""
    own = nn.ModuleDict({"in": nn.Linear(6, 5), "fc1": nn.Linear(5, 5), "fc2": nn.Linear(5, 3)})
    models = LocalModels.from_state_dicts([own.state_dict()] * 3, label_counts=np.ones((3, 3)))
    found = fedrepro.combine(models, "average").state_dict()
    assert found.keys() == own.state_dict().keys()
    assert all(torch.allclose(found[key], value) for key, value in own.state_dict().items())


def test_networks_without_biases_are_read_and_written_without():
    own = nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    models = LocalModels.from_state_dicts([own.state_dict()] * 2, label_counts=np.ones((2, 3)))
    assert models.model.token == "mlp+bias~false+hidden~5"
    assert set(models.tensors) == {"weight0", "weight1"}
    for method in ("average", "weight_matching", "c2m3"):
        found = fedrepro.combine(models, method).state_dict()
        assert found.keys() == own.state_dict().keys()
        assert all(torch.allclose(found[k], v, atol=1e-6) for k, v in own.state_dict().items())
    with pytest.raises(FedreproError, match="these networks have no biases"):
        fedrepro.combine(models, "pfnm")
    without, with_ = own.state_dict(), layers((5, 6), (3, 5), names="02")
    for states, model, sentence in (
        ([with_], "mlp+bias~false+hidden~5", r"that is mlp\+hidden~5, and not 'mlp\+bias~false"),
        ([without], "mlp+hidden~5", r"without bias, that is mlp\+bias~false\+hidden~5, and"),
        ([without, with_], None, r"where state dict 0 has 0 \(5, 6\) without bias"),
    ):
        with pytest.raises(FedreproError, match=sentence):
            LocalModels.from_state_dicts(states, model=model)


def layers(*shapes: tuple[int, int], names: str = "abcdef") -> dict[str, torch.Tensor]:
    found = {}
    for name, (out, into) in zip(names, shapes, strict=False):
        found |= {f"{name}.weight": torch.ones(out, into), f"{name}.bias": torch.ones(out)}
    return found


def without(state, *keys):
    return {key: value for key, value in state.items() if key not in keys}


TWO = layers((5, 6), (3, 5))
REFUSED = {
    "turned around": ([without(TWO, "a.weight") | {"a.weight": torch.ones(6, 5)}],
                      "stored as (in, out), transpose it"),
    "no bias": ([without(TWO, "a.bias")], "'a' has no bias"),
    "other shape": ([TWO, layers((5, 7), (3, 5))], "state dict 1 has a (5, 7), b"),
    "other names": ([TWO, layers((5, 6), (3, 5), names="xy")], "x (5, 6), y (3, 5), where state"),
    "order": ([layers((3, 5), (5, 6))], "b (5, 6), where one does not take what the one before"),
    "convolutions": ([{"c.weight": torch.ones(2, 1, 3, 3)}], "name the class of its network"),
    "not numbers": ([TWO | {"a.bias": "five"}], "'a.bias' holds no floating-point numbers"),
    "whole numbers": ([TWO | {"a.bias": torch.ones(5, dtype=int)}], "no floating-point numbers"),
    "not finite": ([TWO | {"a.bias": torch.full((5,), torch.nan)}], "not finite"),
    "normalisation": ([TWO | {"n.running_mean": torch.ones(5)}], "'n.running_mean'"),
    "a wrapped state": ([{"net": TWO}], "'net' holds no floating-point numbers"),
    "a network": ([network()], "is not a state dict"),
    "too large": ([TWO | {"a.bias": torch.full((5,), 1e300, dtype=torch.double)}], "not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_decided_is_refused_in_a_sentence(case):
    states, sentence = REFUSED[case]
    with pytest.raises(FedreproError, match=re.escape(sentence)):
        LocalModels.from_state_dicts(states)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["downpour_sgd"], "'downpour_sgd' is federated: only one-shot methods"),
        (["local"], "'local' is control"),
        (["fednova_once"], "is for clients that trained by sgd: say their steps by --training"),
        (["pfnm+sigma2~1@2"], "lists several values"),
        (["pfnm", "--labels", "short.csv"], "has 0 rows, not one, of client 'client0'"),
        (["pfnm", "--labels", "narrow.csv"], "(5, 9)"),
        (["pfnm", "--labels", "missing.csv"], "missing.csv cannot be read"),
        (["pfnm", "--labels", "bare.csv"], "name the models in a first column 'client'"),
        (["pfnm", "--labels", "zero.csv"], "not all 0"),
        (["pfnm", "--labels", "long.csv"], "whole numbers of at most 13 digits"),
        (["pfnm", "--labels", "large.csv"], "at most 1,000,000,000,000"),
        (["pfnm", "--labels", "pipe"], "cannot read pipe: it is a pipe or a device; name a file"),
        (["average", "pipe"], "cannot read pipe: it is a pipe"),
        (["average", "--shape", "9" * 5000], "is not of the form 28,28"),
        (["average", "client0.pt"], "is given twice"),
        (["client0.pt"], "unknown method 'client0.pt'"),
        (["average", "--out", "a.bin"], "must end in .pt or .pth or .safetensors"),
        (["uniform_ensemble", "--out", "e.safetensors"], "with their weights go into one .pt"),
        (["average", "bad.safetensors"], "bad.safetensors cannot be read as a state dict"),
        (["average", "none*.pt"], "none*.pt cannot be read as a state dict"),
        (["average", "cut.pt"], "cut.pt cannot be read as a state dict"),
        (["average", "whole.pt"], "dict (it holds torch.nn.modules.linear.Linear, and no code"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("within_a_minute")
def test_a_mistake_on_the_command_line_is_one_sentence(words, sentence, files, capsys):
    head, *rows = Path("counts.csv").read_text().splitlines()
    ones = [f"client{place},{','.join('1' * CLASSES)}" for place in range(1, CLIENTS)]
    tables = {
        name: [f"client0,{cell},{','.join('1' * (CLASSES - 1))}", *ones]
        for name, cell in (("long", "1" * 5000), ("large", "9" * 13))
    }
    tables |= {"short": rows[1:], "narrow": [row.rpartition(",")[0] for row in rows]}
    tables["zero"] = [f"client{place},{','.join('0' * CLASSES)}" for place in range(CLIENTS)]
    tables["bare"] = [row.partition(",")[2] for row in rows]
    for name, lines in tables.items():
        Path(f"{name}.csv").write_text("\n".join([head, *lines] if name != "bare" else lines))
    os.mkfifo("pipe")
    torch.save(torch.nn.Linear(2, 2), "whole.pt")
    Path("cut.pt").write_bytes(Path(files[0]).read_bytes()[:500])
    Path("bad.safetensors").write_bytes(b"no")
    out = [] if "--out" in words else ["--out", "global.pt"]
    assert main(["combine", words[0], *files, *words[1:], *out]) == 2
    assert not Path("global.pt").exists()
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
