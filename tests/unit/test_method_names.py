"""Methods of the command line by what the leaderboard and figures call them."""

from __future__ import annotations

import pytest

from fedrepro.cli.main import main
from fedrepro.own.names import method_named


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
    assert main(["methods", "RegMean"]) == 0
    said = capsys.readouterr().out
    assert [name for name in ("regmean_plus", "RegMean++", "dense") if name in said] == [
        "regmean_plus",
        "RegMean++",
    ]
    assert main(["methods", "nothing"]) == 2
    assert capsys.readouterr().err == "fedrepro: no method has 'nothing' in its name or label\n"
