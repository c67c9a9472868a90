"""What the leaderboard says for somebody's setting; methods by what it and figures call them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest
from small_exhibits import small

from fedrepro.cli.main import main
from fedrepro.core.checksummed_files import checksum_of, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.literature_names_and_setting_tokens import FIELD_NAMES
from fedrepro.core.registry import components, parse_token
from fedrepro.numbers.recommendation import Situation, distance, recommend

METHODS = {  # label: class, exchanges, score in every scenario
    "FedAvg": ("one model", 1, 0.0),
    "good": ("one model", 1, 0.5),
    "twin": ("one model", 1, 0.5),
    "asks": ("one model", 9, 0.9),
    "images": ("public data", 1, 0.7),
    "ensemble": ("several models", 1, 0.8),
    "best client": ("reference", 1, 0.2),
}
SCENES = [("Dirichlet 0.1", 10), ("Dirichlet 0.5", 10), ("iid", 10), ("two labels a client", 10)]


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """Scores differ from trial to trial; `twin` leads `good` in half of them."""
    rows, every = [], []
    place = {"starts": "one start", "data": "D"}
    for method, (kind, exchanges, score) in METHODS.items():
        own = {"class": kind, "method": method, "exchanges": exchanges}
        rows.append(place | own | {"bytes_up": 1.0, "networks": 1})
        noise = [0 if method == "FedAvg" else n for n in (0.02, -0.02, 0.01, -0.01, 0.0)]
        trials = [score + n for n in (noise[::-1] if method == "twin" else noise)]
        numbers = {"mean": sum(trials) / len(trials), "by_trial": " ".join(map(str, trials))}
        every += [
            place | {"case": case, "clients": clients, "method": method, "metric": metric} | numbers
            for case, clients in SCENES
            for metric in ("score", "accuracy")
        ]
    folder = tmp_path / "quick/arena"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(folder / "1.csv", index=False)
    pd.DataFrame(every).to_csv(folder / "1.scenarios.csv", index=False)
    return tmp_path


def changed(board: Path, change, name: str = "1.scenarios") -> None:
    """Write a table of the leaderboard as a function has it."""
    path = board / f"quick/arena/{name}.csv"
    change(pd.read_csv(path)).to_csv(path, index=False)


def by_trial(method: str, text: str):
    """Scores of a method, as a change."""
    return lambda t: t.assign(by_trial=t["by_trial"].where(t["method"] != method, text))


def named(board: Path, wanted: Situation) -> set[str]:
    found = recommend(wanted, board / "quick").methods
    return set(found.index[found["chosen"]])


def advice(board: Path, capsys, *words: str, clients: str = "10") -> str:
    """What the command says at alpha 0.1."""
    given = ["recommend", "--clients", clients, "--skew", "0.1", "--scale", "quick", *words]
    assert main([*given, "--reports", str(board)]) == 0
    return capsys.readouterr().out


def test_methods_that_failed_or_are_below_the_best_of_their_class_are_not_recommended(board):
    assert named(board, Situation(10, "0.1")) == {"good", "twin", "ensemble"}
    assert named(board, Situation(10, "0.1", exchanges=9)) == {"asks", "ensemble"}
    assert named(board, Situation(10, "0.1", public=True)) == {"good", "twin", "images", "ensemble"}
    changed(board, by_trial("good", "0.5 nan 0.5 0.5 0.5"))
    assert named(board, Situation(10, "0.1")) == {"twin", "ensemble"}


def test_accuracies_of_different_data_stand_apart(board):
    def easy(table):
        other = table[table["method"] != "twin"]
        trials = other["by_trial"].where(other["metric"] == "score", "0.7 0.7 0.8 0.8 0.75")
        return pd.concat([table, other.assign(data="E", by_trial=trials)])

    changed(board, easy)
    found = recommend(Situation(10, "0.1"), board / "quick")
    assert [name.partition(",")[0] for name in found.scenarios] == ["D", "E"]
    assert found.methods.loc["good", "accuracies"] == pytest.approx([0.5, 0.75])
    assert "twin" not in found.methods.index  # it was not run in E


def test_costs_are_those_of_the_nearest_scenarios(board):
    """One method asks layer by layer, and a network here has fewer layers than elsewhere."""
    told = {"case": ["Dirichlet 0.1", "Dirichlet 0.5"], "method": "asks", "mean": [3, 5]}
    told |= {"metric": "exchanges", "starts": "one start", "data": "D", "clients": 10}
    changed(board, lambda table: pd.concat([table, pd.DataFrame(told)]))
    assert named(board, Situation(10, "0.1", exchanges=3)) == {"asks", "ensemble"}
    assert "asks" not in named(board, Situation(10, "0.5", exchanges=3))
    # halfway between both scenarios, so the most that one of them takes
    assert "asks" not in named(board, Situation(10, str((0.1 * 0.5) ** 0.5), exchanges=4))


def test_a_method_that_a_near_scenario_lacks_is_named(board):
    lacks = lambda t: t[(t["method"] != "images") | (t["case"] != "Dirichlet 0.1")]  # noqa: E731
    changed(board, lacks)
    said = "Not run, or failed, in some of these scenarios, so not compared: images."
    for public in (True, False):
        found = recommend(Situation(10, "0.1", public=public), board / "quick")
        assert (said in found.remark) == public


def test_what_others_report_is_left_out(board):
    computed = dict.fromkeys(METHODS, "computed here") | {"ensemble": "reported"}
    changed(board, lambda table: table.assign(computed=table["method"].map(computed)), "1")
    assert named(board, Situation(10, "0.1")) == {"good", "twin"}


@pytest.mark.parametrize(
    ("skew", "case"),
    [("0.12", "Dirichlet 0.1"), ("0.3", "Dirichlet 0.5"), ("20", "iid"), ("IID", "iid"),
     ("labels", "two labels a client")],
)  # fmt: skip
def test_the_nearest_scenarios_are_asked(board, skew, case):
    assert recommend(Situation(12, skew), board / "quick").scenarios == [f"D, {case}, 10 clients"]


@pytest.mark.parametrize(
    ("clients", "skew", "case", "doublings"),
    [(40, "0.1", "Dirichlet 0.1", 2), (5, "0.4", "perceptron, Dirichlet 0.1", 3),
     (10, "labels", "Dirichlet 0.1", 3), (10, "iid", "Dirichlet 0.5", math.log2(20))],
)  # fmt: skip
def test_doublings_of_clients_and_alpha_are_counted(clients, skew, case, doublings):
    assert distance(Situation(clients, skew), case, 10) == pytest.approx(doublings)


def test_a_skew_that_is_none_and_a_missing_leaderboard_are_sentences(tmp_path):
    for skew in ("skewed", "0", "-1", "nan", "inf", ""):
        with pytest.raises(FedreproError, match="give an alpha"):
            Situation(10, skew)
    with pytest.raises(FedreproError, match="arena/1 is not in"):
        recommend(Situation(10, "0.1"), tmp_path / "quick")


def test_the_newest_leaderboard_with_all_its_tables_is_asked(board, capsys):
    folder = board / "quick/arena"
    for suffix in ("csv", "scenarios.csv"):
        (folder / f"2.{suffix}").write_bytes((folder / f"1.{suffix}").read_bytes())
    for missing, asked in ((["arena/2-a"], 1), ([], 2)):
        for name, board_of in (("1", {}), ("2", {"supersedes": "1"})):
            tables = {s: (folder / f"{name}{s}").read_bytes() for s in (".csv", ".scenarios.csv")}
            about = {"board": board_of, "missing": missing if name == "2" else []}
            about["files"] = {suffix: checksum_of(data) for suffix, data in tables.items()}
            write_json(folder / f"{name}.json", about)
        assert f"leaderboard arena/{asked}:" in advice(board, capsys)
    changed(board, lambda table: table.tail(-1), "2")
    with pytest.raises(FedreproError, match=r"2\.csv .*it is not the file that .*2\.json names"):
        recommend(Situation(10, "0.1"), board / "quick")


def test_the_command_prints_methods_costs_how_near_that_is_and_a_better_best_client(board, capsys):
    said = advice(board, capsys, clients="20")
    for text in ("D, Dirichlet 0.1, 10 clients", "1.0 doublings", "good", "twin", "ensemble"):
        assert text in said
    assert re.search(r"best client │ 0.20 +│ 0.\d+ to 0.\d+ +│ 20.0", said)
    sent = {"good": "second moments"}
    changed(board, lambda t: t.assign(clients_also_send=t["method"].map(sent)), "1")
    assert "good: clients also send second moments.\n" in advice(board, capsys)
    assert "best client alone" not in said
    for scores, sentence in (
        ("0.9 0.1 0.5 0.1 0.7", "No single model is shown to score above the best client alone"),
        ("0.6 0.7 0.6 0.7 0.6", "The best client alone, by validation, has a higher score than"),
    ):
        changed(board, by_trial("best client", scores))
        assert sentence in " ".join(advice(board, capsys).split())


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
            parse_token("method", said)
    else:
        assert parse_token("method", said).token == meant


def test_every_name_of_the_field_stands_for_a_method_with_such_parameters(capsys):
    page = (Path(__file__).parents[2] / "docs/methods.md").read_text()
    for name in FIELD_NAMES:
        components("method")[name.method].spec(name.values)
        assert f"| {name.name} | `{name.token}` |" in page
        assert main(["list", "methods", name.name.lower()]) == 0
        assert name.name.split()[0] in capsys.readouterr().out
    with pytest.raises(FedreproError, match="training with batch_size none: name it in an exh"):
        parse_token("method", "FedSGD")
    assert main(["list", "methods", "fedpro"]) == 0  # a part of a name
    assert "proximal~0.01" in capsys.readouterr().out


def test_an_exhibit_names_them_with_parameters_and_training_of_its_own():
    methods = [{"name": "FedProx"}, {"name": "fedprox", "proximal": 1, "label": "strong"}]
    (point, *_) = small(methods=[*methods, {"name": "FedSGD", "rounds": 2}]).points
    specs = {measure.label: measure for measure in point.measures}
    assert specs["FedProx"].spec.token == "fedavg+proximal~0.01"
    assert specs["strong"].spec.token == "fedavg+proximal~1"
    assert specs["FedSGD"].training == {"batch_size": None}
