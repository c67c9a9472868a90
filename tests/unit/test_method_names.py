"""Methods of the command line by what the leaderboard and figures call them."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_exhibits import small

from fedrepro.cli.main import main
from fedrepro.core.component_notation import FIELD_NAMES
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token, read_token
from fedrepro.stages.user_models.combine import method_named
from fedrepro.stages.user_models.method_contract import methods_of


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("RegMean++", "regmean_plus"),
        ("FedAvg", "average"),  # as the leaderboard calls it; of many rounds there is nothing here
        ("FedAvg+weighted~false", "average+weighted~false"),
        ("W-Ens", "weighted_ensemble"),
        ("class-weighted ensemble", "weighted_ensemble"),
        ("mean of probabilities", "uniform_ensemble"),
        ("matching, then RegMean", "matched_regmean"),
        ("PFNM+sigma2~0.1", "pfnm+sigma2~0.1"),
        ("average+weighted~false", "average+weighted~false"),
        ("GEMS", "GEMS"),  # two are called so
        ("scaffold", "scaffold"),
        ("nothing", "nothing"),
    ],
)
def test_a_method_is_known_by_its_label(said, meant):
    assert method_named(said) == meant


def test_methods_are_listed_with_labels_and_found_by_either(capsys):
    assert main(["list", "methods", "RegMean"]) == 0
    said = capsys.readouterr().out
    assert [name in said for name in ("regmean_plus", "RegMean++", "dense")] == [True, True, False]
    assert main(["list", "methods", "nothing"]) == 2
    assert "unknown method 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("FedProx", "fedavg+proximal~0.01"),
        ("fedprox+proximal~0.1", "fedavg+proximal~0.1"),
        ("fed-avg-m", "fedavg+server_momentum~0.9"),
        ("FedNova", "fednova"),
        ("SCAFFOLD", "scaffold"),
        ("OTFusion", "ot_fusion"),
        ("RegMean++", None),  # a plus begins a parameter
        ("GEMS", None),  # two are called so
        ("model soup", "average+weighted~false"),
    ],
)
def test_a_token_may_begin_with_a_name_of_the_field(said, meant):
    if meant is None:
        with pytest.raises(FedreproError, match=r"unknown method|not of the form"):
            read_token("method", said)
    else:
        assert read_token("method", said).token == meant
    if said == "FedProx":  # where a path is made of it, only the canonical form is taken
        with pytest.raises(FedreproError, match=r"write 'fedavg\+proximal~0.01'"):
            parse_token("method", said)


def test_every_name_of_the_field_stands_for_a_method_with_such_parameters(capsys):
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text()
    for name in FIELD_NAMES:
        components("method")[name.method].spec(name.values)
        assert f"| {name.name} | `{name.token}` |" in page
        assert main(["list", "methods", name.name.lower()]) == 0
        assert name.name.split()[0] in capsys.readouterr().out


def test_a_name_that_also_sets_the_training_is_no_token_and_a_slip_is_told(capsys):
    assert main(["check-method", "FedSGD"]) == 2
    assert "training with batch_size none: name it in an exhibit" in capsys.readouterr().err
    assert main(["list", "methods", "fedpro"]) == 0  # a part of a name
    assert "proximal~0.01" in capsys.readouterr().out
    assert main(["check-method", "fedproxx"]) == 2
    assert "did you mean 'fedprox'?" in capsys.readouterr().err


def test_a_name_of_the_field_is_checked_at_its_parameters():
    (item,) = methods_of("FedAvgM")
    assert item.spec().token == "fedavg"  # its own defaults, of which a token says nothing
    assert item.spec()["server_momentum"] == 0.9
    assert components("method")["fedavg"].spec()["server_momentum"] == 0


def test_an_exhibit_names_them_with_parameters_and_training_of_its_own():
    methods = [{"name": "FedProx"}, {"name": "fedprox", "proximal": 1, "label": "strong"}]
    exhibit = small(methods=[*methods, {"name": "FedSGD", "rounds": 2}])
    (point, *_) = exhibit.points
    specs = {measure.label: measure for measure in point.measures}
    assert specs["FedProx"].spec.token == "fedavg+proximal~0.01"
    assert specs["strong"].spec.token == "fedavg+proximal~1"
    assert specs["FedSGD"].training == {"batch_size": None}
