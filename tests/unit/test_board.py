"""A leaderboard: what it is read from, classes, rows that say why they have no rank, its ground."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.drawings.figure_layout import rules
from fedrepro.drawings.leaderboard import bytes_up, pictures
from fedrepro.numbers.exhibit_tables import csv_text, read_csv
from fedrepro.numbers.leaderboard import BoardData, BoardRow, board_data, board_rows
from fedrepro.numbers.leaderboard_tables import _costs_there, leaderboard, scenarios, seconds
from fedrepro.planning.config import Board, Config, ExhibitFile, load_exhibits
from fedrepro.planning.plan import Plan, ground_of, part_keys, require_frozen, tables_of_board
from fedrepro.record.site.pages import page as rendered
from fedrepro.record.site.report_data import BoardView
from fedrepro.record.site.verdict_and_leaderboard_texts import answer, made_from, superseded_by
from fedrepro.stages.submissions import exhibit_file_of

ROOT = Path(__file__).parents[2]
BOARD = Board(title="a board", baseline="average", ceiling="pooled", line="best")
LEVELS = {"average": 0.5, "pooled": 0.9, "best": 0.6, "good": 0.8, "alike": 0.8, "votes": 0.7}
NEEDS = {"images": {"public_inputs": "images of others"}}
COSTS = {"votes": {"forward_passes": 4.0}, "asks": {"rounds": 3.0, "bytes_up": 900.0}}


USUAL = {"bytes_up": 300.0, "rounds": 1.0, "forward_passes": 1.0, "parameters": 10.0}
METHOD = {"kind": "one_shot", "sends": "", "criterion": ""}


class Part:
    """As an exhibit on disk: its json and its tables."""

    def __init__(
        self, name: str, cases: dict[str, dict[str, float]], shared: str = "true",
        data: str = "Digits", trials: int = 3,
    ) -> None:  # fmt: skip
        labels = list(dict.fromkeys(label for levels in cases.values() for label in levels))
        self.trials = trials
        self.about = {
            "key": f"board/{name}",
            "scale": "paper",
            "data": [{"token": "digits", "sha256": "abc", "title": data}],
            "scenario": {"training": {"values": {"shared_init": shared}}},
            "methods": [
                METHOD
                | {"label": label, "reference": label in ("pooled", "best")}
                | {"needs": NEEDS.get(label, {})}
                for label in labels
            ],
        }
        rows = []
        for case, label, level in ((c, *pair) for c, own in cases.items() for pair in own.items()):
            scatter = np.random.default_rng(len(case)).normal(scale=0.01, size=trials)
            own = {"accuracy": level + scatter, "server_seconds": np.ones(trials)}
            own |= {k: np.full(trials, v) for k, v in (USUAL | COSTS.get(label, {})).items()}
            place = {"case": case, "clients": 4, "method": label, "setting": label, "sd": 0.0}
            rows += [
                place
                | {"metric": metric, "split": "test" if metric == "accuracy" else ""}
                | {"mean": values.mean(), "trials": trials, "by_trial": " ".join(map(str, values))}
                for metric, values in own.items()
            ]
        self.numbers = pd.DataFrame(rows)

    def table(self, suffix: str) -> pd.DataFrame:
        assert suffix == ".choice.csv"
        tried = {"case": "even", "clients": 4, "method": "good", "chosen": ["true", "false"]}
        tried |= {
            "setting": ["good", "other"],
            "parameter": "rate, kind",
            "value": ["1, a", "2, b"],
        }
        return pd.DataFrame(tried | {"criterion_mean": [0.8, 0.7]})

    @property
    def metrics(self) -> pd.DataFrame:
        """The setting that is better in the mean is worse in the first trial of each three."""
        of_all = {"phase": "final", "metric": "accuracy", "client": np.nan, "model_name": "cnn"}
        rows = [
            {"split": split, "setting": setting, "trial": trial, **of_all}
            | {"value": (level if trial % 3 else first) - lower}
            for setting, first, level in (("good", 0.6, 0.9), ("other", 0.9, 0.6))
            for trial in range(self.trials)
            for split, lower in (("client_validation", 0.0), ("test", 0.1))
        ]
        return pd.DataFrame(rows)


def made(*parts: Part, board: Board = BOARD) -> tuple[BoardData, dict[str, BoardRow]]:
    """The rows of all data sets together, or of the only one."""
    found = board_data(board, parts)
    return found, {row.method.label: row for row in board_rows(found)}


CASES = {"even": LEVELS, "skewed": LEVELS, "two labels": LEVELS}


@pytest.fixture(scope="module")
def usual() -> tuple[BoardData, dict[str, BoardRow]]:
    return made(Part("1-a", CASES))


def test_methods_stand_in_classes_and_groups(usual) -> None:
    found, rows = usual
    assert [rows[label].standing.group for label in ("good", "alike", "average")] == [1, 1, 2]
    assert rows["good"].standing.score.value == pytest.approx(0.75)
    assert (rows["votes"].method.kind, rows["votes"].standing.group) == ("several models", 1)
    for bound in ("pooled", "best"):
        assert rows[bound].unranked_reason == "a bound, which has no rank"
    assert rows["good"].standing.verdict == "better"
    assert rows["average"].standing.verdict == "worse"
    assert (rows["good"].ahead, rows["average"].ahead) == (3, 0)
    assert rows["good"].drawn == "scenarios and trials"
    times = seconds(found, [*rows.values()]).set_index("method")  # means over scenarios
    assert (times.loc["good", "mean"], times.loc["good", "scenarios"]) == (1.0, 3)
    table = leaderboard(found, list(rows.values())).set_index("method")
    assert table.loc[["pooled", "best"], ["group", "rank_low", "rank_high"]].isna().all(axis=None)
    assert table.loc["good", "settings_tried"] == 2
    assert table.loc["alike", "settings_tried"] == 1
    assert table.loc["good", "Digits, even, 4 clients"] == pytest.approx(
        found.entries[found.scenes[0]]["good"].accuracy.mean()
    )


def test_the_home_page_names_the_first_group_of_each_class(usual) -> None:
    found, rows = usual
    table = read_csv(csv_text(leaderboard(found, list(rows.values()))))
    about = {"key": "arena/1", "board": BOARD.model_dump(), "parts": ["1-a"], "missing": ["1-b"]}
    shown = BoardView(about | {"without_score": []}, table, pd.DataFrame())
    told = answer(shown)
    assert told["leaders"][0][:3] == ("one model", "Digits", ["alike", "good"])  # group 1 alone
    assert dict(told["above"])["Digits"] == ["alike", "good", "votes"]
    assert made_from(shown.about) == "Made from 1 of 2 exhibits."
    assert answer(BoardView(shown.about, table.assign(group=np.nan), pd.DataFrame())) == {}


def test_classes_follow_from_needs_and_from_what_was_measured() -> None:
    _, rows = made(Part("1-a", {"even": LEVELS | {"images": 0.7, "asks": 0.7}}))
    kinds = {"images": "public data", "asks": "extra exchanges", "votes": "several models"}
    for label, kind in (kinds | {"good": "one model", "best": "reference"}).items():
        assert rows[label].method.kind == kind


def test_a_run_that_failed_is_a_row_that_says_so() -> None:
    broken = Part("1-a", CASES)
    at = (broken.numbers["method"] == "alike") & (broken.numbers["metric"] == "accuracy")
    broken.numbers.loc[at, "by_trial"] = "0.8 nan 0.8"
    found, rows = made(broken)
    assert rows["alike"].unranked_reason == "3 of 9 runs failed"
    assert rows["alike"].standing is None
    table = leaderboard(found, list(rows.values())).set_index("method")
    assert table.loc["alike", "failed"] == 3
    assert np.isnan(table.loc["alike", "group"])
    assert np.isnan(table.loc["alike", "Digits, even, 4 clients"])
    assert "alike" not in rows["good"].standing.not_significantly_different


def test_a_method_that_lacks_a_scenario_has_no_rank() -> None:
    cases = CASES | {"fourth": {k: v for k, v in LEVELS.items() if k != "alike"}}
    _, rows = made(Part("1-a", cases))
    assert rows["alike"].unranked_reason == "run in 3 of 4 scenarios"
    assert rows["good"].standing.group == 1


def test_a_scenario_where_bounds_are_near_has_no_score() -> None:
    found, rows = made(Part("1-a", CASES | {"easy": LEVELS | {"pooled": 0.505}}))
    assert [scene.case for scene in found.scenes] == list(CASES)
    assert len(rows["good"].scenes) == 3
    assert "easy" in set(scenarios(found, list(rows.values()))["case"])


def test_each_scenario_says_what_a_method_costs_there() -> None:
    found, rows = made(Part("1-a", {"even": LEVELS | {"asks": 0.8}}))
    table = scenarios(found, list(rows.values()))
    told = table[table["case"] == "even"].set_index(["method", "metric"])["mean"]
    assert told["asks", "bytes_up"] == 3.0  # 900 bytes where a model has 300
    assert told["asks", "exchanges"] == 3.0
    assert told["votes", "networks"] == 4.0
    assert told["average", "bytes_up"] == told["average", "networks"] == 1.0


def test_what_others_report_changes_no_other_row() -> None:
    """It is alone in a scenario of its class, and each is tested beside the best client."""
    cases = CASES | {"open": {k: v for k, v in LEVELS.items() if k not in ("votes",)}}
    parts = [Part("1-a", cases)]
    alone = {row.method.label: row for row in board_rows(board_data(BOARD, parts))}

    def entry(label: str, computed: str) -> tuple[str, Part]:
        sent = Part("1-a", {case: {label: 0.81} for case in cases})
        about = sent.about["methods"][0]
        if label == "sent votes":  # of a class that was run in three of the four scenarios
            of_one = sent.numbers["metric"] == "forward_passes"
            sent.numbers.loc[of_one, ["mean", "by_trial"]] = [4.0, "4 4 4"]
        assert about["label"] == label
        return computed, sent

    sent = [entry(f"sent {number}", "reported") for number in range(4)]
    sent += [entry("sent votes", "reported")]
    beside = {row.method.label: row for row in board_rows(board_data(BOARD, parts, entered=sent))}
    assert {label: beside[label] for label in alone} == alone
    assert beside["sent 0"].standing is None
    assert beside["sent 0"].unranked_reason == (
        "reported by others, not verified; it would have score 0.78, group 1, rank 1 to 1, and be "
        "better against best"
    )
    assert "group 1" in beside["sent votes"].unranked_reason

    sent = [entry("sent votes", "verified"), *(entry(f"sent {n}", "verified") for n in range(4))]
    verified = {row.method.label: row for row in board_rows(board_data(BOARD, parts, entered=sent))}
    assert verified["votes"].unranked_reason == ""  # and not "run in 3 of 4 scenarios"
    assert verified["sent votes"].standing is not None
    assert len(verified["sent votes"].scenes) == 3


def test_starts_are_families_of_their_own() -> None:
    found = board_data(BOARD, [Part("1-a", CASES), Part("1-b", {"even": LEVELS}, shared="false")])
    starts = [row.starts for row in board_rows(found) if row.method.label == "good"]
    assert starts == ["one start", "different starts"]


def test_other_data_than_the_boards_or_a_missing_bound_are_refused() -> None:
    frozen = BOARD.model_copy(update={"data": {"digits": "other"}})
    with pytest.raises(FedreproError, match="other data called digits"):
        made(Part("1-a", CASES), board=frozen)
    with pytest.raises(FedreproError, match="has no 'pooled'"):
        made(Part("1-a", {"even": {"average": 0.5, "good": 0.8}}))


def test_tables_and_pictures_repeat_to_the_byte() -> None:
    def drawn(parts: list[Part]) -> dict[str, bytes]:
        found = board_data(BOARD, parts)
        rows = board_rows(found)
        table, single = csv_text(leaderboard(found, rows)), csv_text(scenarios(found, rows))
        shown = pictures(BOARD.model_dump(), read_csv(table))
        return {"table": table.encode(), "single": single.encode(), **shown}

    def parts() -> list[Part]:
        return [Part("1-a", CASES), Part("1-b", {"even": LEVELS}, shared="false")]

    first = drawn(parts())
    assert first == drawn(parts())
    assert {".groups.svg", ".groups.png", ".bytes.svg", ".bytes.png"} < set(first)


def test_each_data_set_stands_by_itself_and_counts_alike_among_all() -> None:
    """Three scenarios of one, and one of each of two others, where `good` is below average."""
    low = {"even": LEVELS | {"good": 0.3}}
    parts = [Part("1-a", CASES), Part("1-b", low, data="Shapes"), Part("1-c", low, data="Ovals")]
    found = board_data(BOARD, parts)
    rows = {(row.data, row.method.label): row for row in board_rows(found)}
    assert list(dict.fromkeys(data for data, _ in rows)) == ["Digits", "Shapes", "Ovals", "all"]
    score = {
        data: row.standing.score.value for (data, label), row in rows.items() if label == "good"
    }
    assert score["Digits"] == pytest.approx(0.75)
    assert score["Shapes"] == pytest.approx(-0.5)
    assert score["all"] == pytest.approx((0.75 - 0.5 - 0.5) / 3)
    good = rows["all", "good"]
    assert good.drawn == "data sets and trials"
    assert (good.standing.verdict, good.ahead) == ("not shown", 3)
    assert rows["Shapes", "good"].drawn == "trials"
    assert rows["Shapes", "good"].standing.group is None  # a single scenario
    table = leaderboard(found, board_rows(found))
    page = board_part(shown_as(found, table))
    assert "In these intervals trials are drawn again. Fewer than three scenarios" in page
    assert "In these intervals data sets and trials are drawn again." in page


def board_part(shown: BoardView, later: str = "") -> str:
    return rendered("board.md", up="../", shown=shown, links={}, guide="", later=later)


def shown_as(found: BoardData, table: pd.DataFrame) -> BoardView:
    about = {"key": "arena/1", "board": BOARD.model_dump(), "parts": ["1-a"], "missing": []}
    rows = board_rows(found)
    others = [read_csv(csv_text(made(found, rows))) for made in (seconds, scenarios)]
    return BoardView(about | {"without_score": []}, read_csv(csv_text(table)), *others)


def test_settings_of_each_trial_ends_of_grids_and_what_choosing_costs(usual) -> None:
    found, rows = usual
    even = found.scenes[0]
    assert found.entries[even]["good"].in_each_trial.tolist() == pytest.approx([0.8] * 3)
    assert rows["good"].each_trial != pytest.approx(rows["good"].standing.score.value)
    assert rows["alike"].each_trial == pytest.approx(rows["alike"].standing.score.value)
    table = leaderboard(found, [*rows.values()]).set_index("method")
    assert table.loc["good", "ends_of_grid"] == "rate: lowest in 1, highest in 0 of 1"
    with_choice = ("exchanges_with_choice", "bytes_up_with_choice", "bytes_down_with_choice")
    costs = scenarios(found, [*rows.values()])
    assert set(costs["metric"]) >= {"bytes_up", "exchanges"}
    # the best client sends all models to four clients
    wanted = {"good": [2.0, 1.0, 2.0], "best": [2.0, 1.0, 4.0], "alike": [1.0, 1.0, 0.0]}
    for method, numbers in wanted.items():
        own = _costs_there(found, even, method)
        assert [own[name] for name in with_choice] == numbers


def test_metrics_of_other_settings_than_the_choice_names_are_refused() -> None:
    class Other(Part):
        @property
        def metrics(self) -> pd.DataFrame:
            return super().metrics.assign(value=0.5)

    with pytest.raises(FedreproError, match="the metrics lack the settings of 'good'"):
        made(Other("1-a", CASES))


def test_a_board_may_choose_settings_in_each_trial_as_the_best_client_is_chosen() -> None:
    found, rows = made(Part("1-a", CASES), board=BOARD.model_copy(update={"each_trial": True}))
    even = found.scenes[0]
    assert found.entries[even]["good"].accuracy.tolist() == pytest.approx([0.8] * 3)
    assert rows["good"].standing.score.value == pytest.approx(rows["good"].each_trial)
    table = leaderboard(found, [*rows.values()]).set_index("method")
    # of three trials the first takes the other setting
    assert table.loc["good", "ends_of_grid"] == "rate: lowest in 2, highest in 1 of 3"


def test_a_page_says_what_another_test_gives_and_what_supersedes_it(usual) -> None:
    """Wilcoxon's signed ranks tell nothing apart in three scenarios, whatever was measured."""
    found, rows = usual
    first = shown_as(found, leaderboard(found, list(rows.values())))
    page = board_part(first)
    assert "Other first groups: Wilcoxon&#x27;s signed ranks" in page
    assert "gives alike, good and average (one model)" in page
    assert "Nemenyi" in page
    later = BOARD.model_copy(update={"supersedes": "1"}).model_dump()
    second = BoardView({**first.about, "key": "arena/2", "board": later}, first.table, first.times)
    assert superseded_by(first, [first]) == superseded_by(second, [first, second]) == ""
    assert superseded_by(first, [first, second]) == "arena/2"
    half = BoardView({**second.about, "missing": ["arena/2-c"]}, first.table, first.times)
    assert superseded_by(first, [first, half]) == ""
    assert "Superseded by arena/2" in board_part(first, "arena/2")
    assert "Superseded" not in page


# ---------------------------------------------------------------------------------------- ground


@pytest.fixture(scope="module")
def plan() -> Plan:
    files = {"arena": load_exhibits()["arena"]}
    return Plan(Config(), files, "paper")


def test_the_ground_is_as_it_is_written(plan: Plan) -> None:
    require_frozen(plan)
    assert plan.files["arena"].boards["1"].ground == ground_of(tables_of_board(plan, "arena", "1"))


def test_a_changed_ground_is_refused_and_another_method_is_not(plan: Plan) -> None:
    file = plan.files["arena"]
    name = "1-perceptron"

    def changed(**settings: object) -> Plan:
        exhibits = file.exhibits | {name: file.exhibits[name] | settings}
        own = ExhibitFile.model_validate(file.model_dump() | {"exhibits": exhibits})
        return Plan(Config(), {"arena": own}, "paper")

    with pytest.raises(FedreproError, match="add it as arena/2"):
        require_frozen(changed(trials=6))
    methods = [*file.defaults["methods"], {"name": "average", "label": "once more"}]
    require_frozen(changed(methods=methods))


def test_every_method_has_the_same_budget_and_is_chosen_alike(plan: Plan) -> None:
    from fedrepro.api import BUDGET

    for exhibit in tables_of_board(plan, "arena", "1"):
        for point in exhibit.points:
            assert set(point.trials.values()) == {5}
            for measure in point.measures:
                assert len(measure.settings) <= BUDGET
                assert measure.choose is None or measure.choose.split == "client_validation"


def test_a_methods_own_settings_are_tried_and_one_without_is_refused() -> None:
    from small_exhibits import small

    choose = {"metric": "accuracy", "split": "client_validation"}
    partition = {"name": "iid", "validation": 20, "validation_at": "clients"}
    training = {"name": "sgd", "shared_init": True}

    def made(name: str) -> list[dict[str, object]]:
        method = {"name": name, "label": "m", "settings": "grid", "choose": choose}
        exhibit = small(partition=partition, training=training, methods=[method])
        return [dict(setting.method.values) for setting in exhibit.measures[0].settings]

    found = made("task_arithmetic")
    assert [one["scale"] for one in found] == [0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0]
    assert len({(one["alpha"], one["ridge"]) for one in made("regmean")}) == 8
    with pytest.raises(FedreproError, match="'average' declares no settings for comparisons"):
        made("average")


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_a_method_joins_a_leaderboard_by_one_line(scale: str) -> None:
    file = load_exhibits()["arena"]
    also = [{"name": "average", "label": "once more"}]
    own = Plan(Config(), {"arena": file.model_copy(update={"also": also})}, scale)
    parts = tables_of_board(own, "arena", "1")
    assert len(parts) > 1
    for part in parts:
        assert "once more" in [measure.label for measure in part.measures], part.key
    require_frozen(own)


def test_no_mark_is_cut_by_an_edge() -> None:
    place = Path(__file__).parents[2] / "reports/record/paper/arena"
    board = json.loads((place / "1.json").read_text())["board"]
    with rules():
        drawn = bytes_up(board, pd.read_csv(place / "1.csv"))
        drawn.canvas.draw()
    for axes in drawn.axes:
        box = axes.get_window_extent()
        for mark in (line for line in axes.lines if line.get_marker() != "None"):
            _, y = axes.transData.transform(mark.get_xydata()[0])
            half = mark.get_markersize() / 2**0.5 * drawn.dpi / 72  # a diamond's
            assert box.y0 <= y - half < y + half <= box.y1


def test_a_method_in_rounds_is_on_no_ground_of_one_exchange():
    file = load_exhibits()["arena"]

    def planned(entry):
        return Plan(Config(also={"arena": [entry]}), {"arena": file}, "paper")

    plan = planned({"name": "fedavg", "label": "mine", "rounds": 20, "fraction": 1.0})
    parts = set(part_keys(plan, "arena", "1"))
    assert {key for key, label in plan.without if label == "mine"} >= parts
    told = str(plan.without[min(parts), "mine"])
    assert told.startswith("arena/1 compares methods of one exchange, and method 'fedavg' runs for")
    assert told.endswith("give it rounds: 1, or compare it in arena/rounds")
    assert any("goes without 'mine'" in sentence for sentence in plan.mistakes)
    assert "mine" in {m.label for m in plan.exhibit("arena/rounds").measures}
    once = planned({"name": "fedavg", "label": "mine", "rounds": 1, "fraction": 1.0})
    assert not once.without
    sent = exhibit_file_of(file, {"name": "fedavg", "rounds": 20})
    with pytest.raises(FedreproError, match="compares methods of one exchange"):
        Plan(Config(), {"arena": sent}, "paper").exhibit(min(parts))
