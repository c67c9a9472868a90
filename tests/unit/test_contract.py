"""What holds for every method; learns.yaml lists those that have to learn, too."""

from __future__ import annotations

import re
from pathlib import Path

import contract
import numpy as np
import pytest
from exact import read_kept
from problems import problem

from fedrepro.api import NEEDS
from fedrepro.cli.main import main
from fedrepro.core import user_component_files as component_files
from fedrepro.core.registry import components
from fedrepro.numbers.model_evaluation import correct
from fedrepro.stages.user_models import method_contract as held
from fedrepro.stages.user_models.method_contract import check_method, methods_of
from fedrepro.training.federation.clients import Clients, GraphNodes

LEARNS = read_kept("learns.yaml")
DEEP = [name for name, how in LEARNS.items() if "deep" in how]


@pytest.mark.parametrize("name", contract.METHODS)
def test_a_method_says_what_it_is(name):
    held.says_what_it_is(contract.METHODS[name])


@pytest.mark.parametrize("name", contract.ONE_SHOT)
def test_a_method_does_with_what_it_declares_changes_nothing_and_repeats_itself(name, given):
    held.combines(contract.quick(name), contract.suited(name, given))


@pytest.mark.parametrize("name", [*contract.FEDERATED, *contract.PEERS])
def test_a_method_in_rounds_is_pure_and_goes_on_from_a_saved_state(name):
    held.goes_on(contract.METHODS[name], contract.problem_for(name))


@pytest.mark.parametrize("name", LEARNS)
def test_it_beats_chance_on_an_easy_problem(name):
    assert name in contract.METHODS
    how = LEARNS[name]
    own = contract.problem_for(name, shared_init=how.get("shared_start", False))
    models = contract.models_of(name, own, how.get("values", {}))
    assert np.mean([correct(model, contract.as_split(own)).mean() for model in models]) > 0.5


@pytest.mark.parametrize("name", DEEP)
def test_it_beats_chance_on_several_hidden_layers(name):
    deep = problem(hidden=(8, 7), shared_init=LEARNS[name].get("shared_start", False))
    models = contract.models_of(name, deep, LEARNS[name]["deep"])
    assert np.mean([correct(model, contract.as_split(deep)).mean() for model in models]) > 0.5


PAGES = ("adding-a-method.md", "adding-a-method-in-rounds.md")
PAGE = "".join((Path(__file__).parents[2] / "docs" / name).read_text() for name in PAGES)
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.S)
MEDIAN = next(code for code in CODE if '@method("median"' in code)
ROUNDS = next(code for code in CODE if '@method("my_fedavg"' in code)
PEER = next(code for code in CODE if "class MyNeighbours" in code)
WALK = next(code for code in CODE if '"my_walk"' in code)
SAM = next(code for code in CODE if '@method("my_sam"' in code)
SGD = MEDIAN.replace("label=", "trainings={'sgd'}, label=")


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Checks what a file has."""

    def check(text: str, file: str = "mine.py"):
        (tmp_path / file).write_text(text)
        return {item.name: check_method(item) for item in methods_of(str(tmp_path / file))}

    monkeypatch.setenv(component_files.NAMED, "")
    yield check
    monkeypatch.setenv(component_files.NAMED, "")
    components("method")


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (MEDIAN, {"median"}),
        (SGD.replace("    tensors", "    info.training['momentum']\n    tensors", 1), {"median"}),
        (ROUNDS, {"my_fedavg", "my_fedavgm"}),
        (SAM, {"my_sam"}),
        (PEER, {"my_neighbours"}),
        (WALK, {"my_walk"}),
    ],
)
def test_the_methods_of_the_page_pass(found, text, names):
    checked = found(text)
    assert set(checked) == names
    for findings in checked.values():
        assert len(findings) >= 2
        assert not any(findings.values()), findings


def test_the_page_names_what_clients_do_and_what_that_needs():
    """A method of `Clients` that is new, or gone, is missed here."""
    rows = re.findall(r"^\| (`.+?) \| (.*?) \|", PAGE, re.M)
    named = set(re.findall(r"`(\w+)", " ".join(first for first, _ in rows)))
    public = {name for of in (Clients, GraphNodes) for name in vars(of) if not name.startswith("_")}
    assert named - {"clients", "peers"} == public | set(GraphNodes.__dataclass_fields__)
    assert set(re.findall(r"`(\w+)`", " ".join(second for _, second in rows))) <= set(NEEDS)


(BODY,) = re.findall(r"^    tensors = .*\n", MEDIAN, re.M)
HELD = "        held = info.example_counts[chosen]\n"
COUNTING = """        self.calls = getattr(self, "calls", 0) + 1
        held = info.example_counts[chosen] + self.calls * np.arange(len(chosen))
"""
RESULT = "GlobalModel(clients.model, tensors)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (changed(MEDIAN, '    """median_j w_j, weight by weight."""\n', ""), "no first line"),
        (changed(MEDIAN, BODY, BODY + "    clients.tensors['bias0'][:] = 0\n"), "it changes"),
        (changed(MEDIAN, "np.median(value, axis=0)[None]", "np.random.rand(1, *value.shape[1:])"
                 ".astype('f')"), "a second call makes another"),
        (changed(MEDIAN, BODY, BODY + "    print(info.label_counts.sum())\n"),
         r"mine\.py, line 1\d, `print\(info\.label_counts.*None"),
        (changed(MEDIAN, "axis=0)[None]", "axis=0)[None, ..., 1:]"),
         "its networks cannot predict, with tensors of shapes {'weight0': "),
        (changed(MEDIAN, f"return {RESULT}", "return 3"), "returns a int"),
        (changed(MEDIAN, BODY, BODY + "    tensors['bias0'] = tensors['bias0'] * np.nan\n"),
         "its predictions are not finite"),
        (changed(MEDIAN, f"return {RESULT}", "return None"), "makes no model of these clients"),
        (changed(MEDIAN, RESULT, "GlobalModel(clients.model, tensors, np.ones((1, 10)) * 2)"),
         "do not add up to 1"),
        (changed(MEDIAN, RESULT, "GlobalModel(clients.model, tensors, np.ones((1, 9)))"),
         "its networks cannot predict|weights are"),
        (changed(MEDIAN, RESULT, "GlobalModel(clients.model, clients.tensors, weights=np.random."
                 "dirichlet([1] * len(clients.tensors['bias0']), 10).T)"), r"another \['weights'"),
        (changed(MEDIAN, RESULT, "GlobalModel(clients.model, tensors, diagnostics={'luck': 1.0})"),
         "which its decorator does not declare"),
        (changed(changed(MEDIAN, 'label="', "needs={'client_answers'}, sends='x', label=\""),
                 BODY, BODY + "    info.clients.data\n"), "a method reads `clients.data`"),
        (changed(ROUNDS, '        return {"weights": {k: v / found.weight for',
                 '        state["weights"]["bias0"][:] = 0\n        return {"weights": {k: v / '
                 "found.weight for"), "changes the state"),
        (changed(ROUNDS, HELD, COUNTING), "gives another state"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_found_out(found, text, told):
    whys = [why for findings in found(text).values() for why in findings.values() if why]
    assert any(re.search(told, why) for why in whys), whys


def test_it_says_what_a_method_breaks(capsys, tmp_path):
    assert main(["check-method", "regmean"]) == 0
    said = capsys.readouterr().out
    assert "regmean: passes all 2 checks" in said
    (tmp_path / "bad.py").write_text(changed(MEDIAN, f"return {RESULT}", "return 3"))
    assert main(["check-method", str(tmp_path / "bad.py")]) == 1
    said = capsys.readouterr().out
    assert "FAILS" in said
    assert "median: fails 1 of 2 checks" in said
    for name in ("best_client", "fedavg", "pooled"):
        assert not any(check_method(components("method")[name]).values())


PARTITION = """
from fedrepro.core.registry import register

@register('partition', 'mine', version=1)
def mine(examples, rng):
    'No one.'
"""


NEEDING = changed(MEDIAN, "*, rng: RngKey)", "*, rng: RngKey, share: Annotated[float, Arg('x')])")
IMPORTS = "from typing import Annotated\nfrom fedrepro.core.spec import Arg\nimport numpy"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (changed(MEDIAN, "label=", "models={'cnn'}, label="), "combines cnn, not 'mlp"),
        (changed(NEEDING, "import numpy", IMPORTS), "has no default for 'share'"),
        (PARTITION, "has no method"),
    ],
)
@pytest.mark.usefixtures("found")
def test_what_cannot_be_checked_is_a_sentence(text, told, capsys, tmp_path):
    (tmp_path / "odd.py").write_text(text)
    assert main(["check-method", str(tmp_path / "odd.py")]) == 2
    assert told in capsys.readouterr().err
