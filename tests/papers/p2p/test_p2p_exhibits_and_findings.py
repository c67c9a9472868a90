"""What entries and findings of nodes on graphs say, what is compared, and how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
import pytest
from findings import RECORD, asked, told
from small_exhibits import file_of, small
from synthetic import plan

from fedrepro.core.checksummed_files import read_json, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.lines_and_layout import figure, rules
from fedrepro.drawings.style import line_styles
from fedrepro.numbers.trial_statistics import last_series, select_node
from fedrepro.papers.p2p.drawings.confusion import map_of, shares
from fedrepro.planning.config_files import SCALES, Config
from fedrepro.planning.plan import Exhibit, Plan


def of_paper(name: str, scale: str = "tiny") -> Exhibit:
    return plan(scale).exhibit(f"p2p/{name}")


def rows(*given) -> pd.DataFrame:
    """(client, split, metric, value) of one trial."""
    frame = pd.DataFrame(given, columns=["client", "split", "metric", "value"])
    return frame.assign(trial=0, round=None, phase="final")


ACCURACY = {"test": (0.5, 0.4, 0.6), "before": (0.5, 0.4, 0.6), "after": (0.75, 0.7, 0.8)}
MEASURED = rows(
    *(
        (client, split, "accuracy", value)
        for split, values in ACCURACY.items()
        for client, value in zip((None, 0, 1), values, strict=True)
    ),
    (None, "test", "accuracy_of_means", 0.5),
    (None, "", "bytes_up", 99.0),
)

SENT = {("bytes_up", ""): 99.0}
AFTER = ("accuracy", "test")


@pytest.mark.parametrize(
    ("node", "belief", "wanted"),
    [
        (None, "after", {AFTER: 0.75} | SENT),
        (2, "after", {AFTER: 0.8} | SENT),
        (1, "before", {AFTER: 0.4} | SENT),
        (2, None, {AFTER: 0.6} | SENT),
        (None, None, {AFTER: 0.5, ("accuracy_of_means", "test"): 0.5} | SENT),
    ],
)
def test_a_node_has_its_own_numbers_and_what_is_of_all_alone(node, belief, wanted):
    """A mean over nodes is not shown as that of a node."""
    found = select_node(MEASURED, node, belief).set_index(["metric", "split"])["value"].to_dict()
    assert {key: found[key] for key in (found if belief else wanted)} == wanted
    assert node is None or ("accuracy_of_means", "test") not in found


def curve(*values, metric="accuracy", trial=0) -> pd.DataFrame:
    frame = pd.DataFrame({"round": range(1, len(values) + 1), "value": values})
    return frame.assign(metric=metric, split="test", trial=trial, phase="round")


def test_the_mean_of_the_last_rounds_is_compared_and_their_scatter_shown():
    own = pd.concat([curve(0.0, 0.5, 0.6, 0.7), curve(0.1, 0.2, 0.2, 0.2, trial=1)])
    found = last_series(own, 3, 2, "here")
    assert found["accuracy", "test"] == pytest.approx([0.6, 0.2])
    assert found["accuracy_scatter", "test"] == pytest.approx([0.1, 0.0])
    # what counts all rounds has no mean over some
    assert last_series(curve(1.0, 2.0, metric="bytes_up"), 2, 1, "here") == {}
    with pytest.raises(FedreproError, match="a mean over the last 5 measured rounds needs 5"):
        last_series(curve(0.5, 0.6), 5, 1, "here")


@pytest.mark.parametrize("scale", SCALES)
def test_every_exhibit_measures_as_many_rounds_as_it_compares(scale):
    for exhibit in (one for one in plan(scale).exhibits.values() if one.paper == "p2p"):
        for run in (run for run in exhibit.trials if run.every is not None):
            last = run.method["rounds"]
            due = sum(run.every.is_due(done, last) for done in range(1, last + 1))
            assert due >= exhibit.settings.last_rounds, (exhibit.key, run.method.token)


COUNTS = np.array([[8, 2, 0], [1, 9, 0], [5, 0, 5]])
GROUPS = {"0 or 1": [0, 1]}


def test_shares_are_of_the_examples_of_a_class_or_of_a_group_and_drawn_without_groups():
    found = shares(COUNTS, GROUPS)
    assert found["0 as 1"] == 0.2
    assert found["2 as 0 or 1"] == found["2 right"] == 0.5
    assert found["0 or 1 as 0"] == pytest.approx(9 / 20)
    assert found["0 or 1 right"] == pytest.approx(17 / 20)
    numbers = pd.DataFrame(
        {"method": label, "metric": "confusion", "split": split, "mean": share, "sd": 0.0}
        for label in "BA"
        for split, share in shares(COUNTS, GROUPS).items()
    )
    assert map_of(numbers, "B") == pytest.approx(COUNTS / 10)
    with rules():
        texts = [text.get_text() for text in figure(maps(), numbers).axes[0].texts]
    assert texts == ["80", "20", "10", "90", "50", "50"]


def maps(**settings) -> Exhibit:
    entry = {"name": "variational_consensus", "node": 1, "belief": "before", "label": "B"}
    given = {
        "drawing": {"name": "confusion", "groups": GROUPS},
        "sweep": {"partition.clients": [2]},
        "model": {"name": "variational_mlp"},
        "graph": {"name": "ring"},
        "methods": [entry, entry | {"label": "A", "belief": "after"}],
    }
    return small(**given | settings)


def test_the_confusion_of_a_node_and_a_belief_is_taken(tmp_path):
    columns = ["trial", "belief", "client", "label", "predicted"]
    places = product(range(2), ("before", "after"), (0, 1), range(3), range(3))
    found = pd.DataFrame(places, columns=columns).assign(setting="s", count=1)
    own = found["client"] == 0
    found.loc[own, "count"] = COUNTS[found["label"][own], found["predicted"][own]]
    write_table(tmp_path / "confusion.parquet", found.to_dict("list"), "confusion", {})
    exhibit = maps()
    given = [tmp_path / "metrics.parquet"], "s", exhibit.measures[0]
    assert exhibit.settings.drawing.further(*given, 2, "here")["confusion", "0 as 1"] == [0.2, 0.2]


def test_what_cannot_be_drawn_so_is_a_sentence():
    with pytest.raises(FedreproError, match="confusion is drawn at one point"):
        maps(sweep={"partition.clients": [2, 4]})
    with pytest.raises(FedreproError, match="'B' needs a node and a belief"):
        maps(methods=[{"name": "variational_consensus", "label": "B"}])


def test_a_node_keeps_its_colour_in_both_beliefs():
    look = line_styles(of_paper("figure-3a").measures)
    assert look["node 1"].colour == look["node 1, after"].colour != look["node 2"].colour
    assert look["node 1"].dash != look["node 1, after"].dash
    assert len(set(look.values())) == len(look)


def test_graphs_are_drawn_by_shape_against_nodes_though_some_lack_a_method():
    exhibit, found = of_paper("graphs", "paper"), []
    for at, point in enumerate(exhibit.points):
        for metric in ("accuracy", "accuracy_worst", "spectral_gap", "bytes_up"):
            split = "test" if "accuracy" in metric else ""
            own = {"metric": metric, "split": split, "mean": (at + 1) / 100, "sd": 0.0}
            own["case"] = point.values["case"]
            found += [own | {"method": measure.label} for measure in point.measures]
    numbers = pd.DataFrame(found).assign(round=None)
    with rules():
        drawn = figure(exhibit, numbers)
    worst = {tuple(map(float, at)) for line in drawn.axes[1].lines for at in line.get_xydata()}
    rows = numbers[numbers["metric"] == "accuracy_worst"]
    nodes = rows["case"].str.extract(r"(\d+) nodes")[0].astype(float)
    assert worst == {*zip(nodes, rows["mean"], strict=True)}
    assert drawn.texts[1].get_text().endswith(f" · {exhibit.points[0].trials['gossip SGD']} trial")


@pytest.mark.parametrize(("last", "expected"), [(1, ()), (3, ("server_validation",))])
def test_what_a_table_averages_over_rounds_is_followed(last, expected):
    file = file_of(  # a table of what nodes have on validation examples
        dataset={"name": "digits"},
        partition={"name": "iid", "clients": 2, "validation": 50},
        model={"name": "variational_mlp", "hidden": [5]},
        graph={"name": "complete"},
        drawing={"name": "table", "rows": ["method"], "split": "server_validation"},
        parameters={"rounds": 6, "steps": 1},
        sweep={},
        methods=[{"name": "variational_consensus"}, {"name": "local"}],
        last_rounds=last,
    )
    splits = Plan(Config(), {"small": file}, "quick").splits
    followed = {run.method.name: own for run, (_, own) in splits.items()}
    assert followed == {"variational_consensus": expected, "local": ()}


FOLDER = RECORD / "paper/p2p"
FLAT = told("p2p")


def settings() -> Iterator[str]:
    """The settings of the main table."""
    exhibit = of_paper("table-accuracy", "paper")
    (run,) = {r for r in exhibit.points[0].runs.values() if r.every}
    training, model, rounds = run.scenario.training, run.scenario.model, run.method["rounds"]
    assert (training.name, training["amsgrad"], run.method["divergence"]) == ("adam", False, 1)
    yield f"Adam, {training['lr']:g}, without AMSGrad"
    steps = run.method["steps"]
    yield f"{training['batch_size']} examples, {steps} minibatches between exchanges"
    whole_batches = 30_000 // training["batch_size"]
    assert rounds * steps / whole_batches == training["epochs"]
    yield f"{training['epochs']} of half of the data: {rounds:,} exchanges"
    yield f"| spread at the start | {model['spread']:g} |"
    yield f"N(0, {model['prior_sd']:g}) in the first round"
    assert exhibit.settings.last_rounds == 5
    assert int(str(run.every)) * steps == whole_batches
    yield "the mean of the last five measured rounds, one an epoch"


def recorded() -> Iterator[str]:
    for bound in ("printed", "corrected"):
        assert asked("p2p/theorem-1", f"most error_at_{bound} of Algorithm 1") == [0]
    yield "at both bounds no repeat of 10,000 was wrong"
    found = pd.read_csv(FOLDER / "table-accuracy.printed.csv")
    words = found["apart"].str.partition(": ")[0].value_counts().to_dict()
    assert words == {"calibrated": 12, "nearly fixed": 5}
    yield "twelve are calibrated, and five, of nodes alone,"
    good = found[found["verdict"] == "reproduced"]
    assert (good["case"] == "case (b)").sum() == 4  # "all within a point of print"
    left = (good["tolerance"] - good["difference"].abs()).sort_values()
    at = good.loc[left.index[0]]
    assert (at["case"], at["method"]) == ("i.i.d.", "node 2")
    yield f"within its point by {left.iloc[0]:.5f}, node 2 with i.i.d. halves"
    rows = pd.read_csv(FOLDER / "graphs.csv").query("metric == 'accuracy' and round.isna()")
    both = rows.pivot(index="case", columns="method", values="mean").dropna()
    behind = 100 * (both["consensus of beliefs"] - both["gossip SGD"])
    yield f"is {behind.min():.1f} to {behind.max():.1f} points behind consensus wherever both are"
    files = "table-accuracy defaults settings interval graphs theorem-1 figure-1a"
    files += " spreads-iid spreads-a spreads-b spreads-unbalanced"
    spent = [read_json(FOLDER / f"{name}.json")["run"]["cpu_seconds"] for name in files.split()]
    hours = sum(sum(own.values()) for own in spent) / 3600
    yield f"All exhibits together took at most {hours:.1f} hours of one core"


@pytest.mark.parametrize("part", [settings, recorded])
def test_sentences_are_those_of_the_configuration_and_the_record(part):
    assert [sentence for sentence in part() if sentence not in FLAT] == []


@pytest.mark.parametrize("node", ["node 1", "node 2"])
def test_what_is_said_of_epochs_and_of_the_interval_is_so(node):
    checked = f"accuracy (server_validation) of {node} at case=unbalanced:"
    short, long = (asked("p2p/defaults", f"{checked} {n} epochs")[0] for n in (20, 80))
    (printed,) = asked("p2p/table-accuracy.printed", f"{node} at case=unbalanced")
    assert short < printed < long
    for case in ("case (a)", "unbalanced"):
        often, rare = (f"{node} at case={case}, {n}" for n in ("3 minibatches", "1 minibatch"))
        assert asked("p2p/interval", f"{often} minus {rare}")[0] > 0
