"""A leaderboard: what it is read from, classes, rows that say why they have no rank, its ground."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_exhibits import small

from fedrepro.core.checksummed_files import read_json
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.leaderboard import bytes_up, pictures
from fedrepro.drawings.lines_and_layout import rules
from fedrepro.numbers import leaderboard as boards
from fedrepro.numbers.tables_and_selection import csv_text, read_csv
from fedrepro.planning.config_files import Board, Config, ExhibitFile, load_exhibits
from fedrepro.planning.plan import Plan, require_frozen
from fedrepro.record.record_entries_and_leaderboards import write_board
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
TRIALS = 3
METHOD = {"kind": "one_shot", "sends": "", "criterion": ""}


class Part:
    """As an exhibit on disk: its json and its tables."""

    def __init__(self, cases: dict[str, dict[str, float]], data: str = "Digits") -> None:
        labels = list(dict.fromkeys(label for levels in cases.values() for label in levels))
        self.about = {
            "key": "board/1-a",
            "scale": "paper",
            "data": [{"token": "digits", "sha256": "abc", "title": data}],
            "scenario": {"training": {"values": {"shared_init": "true"}}},
            "methods": [
                METHOD
                | {"label": label, "reference": label in ("pooled", "best")}
                | {"needs": NEEDS.get(label, {})}
                for label in labels
            ],
        }
        rows = []
        for case, label, level in ((c, *pair) for c, own in cases.items() for pair in own.items()):
            scatter = np.random.default_rng(len(case)).normal(scale=0.01, size=TRIALS)
            own = {"accuracy": level + scatter, "server_seconds": np.ones(TRIALS)}
            own |= {k: np.full(TRIALS, v) for k, v in (USUAL | COSTS.get(label, {})).items()}
            place = {"case": case, "clients": 4, "method": label, "setting": label, "sd": 0.0}
            rows += [
                place
                | {"metric": metric, "split": "test" if metric == "accuracy" else ""}
                | {"mean": values.mean(), "trials": TRIALS, "by_trial": " ".join(map(str, values))}
                for metric, values in own.items()
            ]
        self.numbers = pd.DataFrame(rows)

    def table(self, suffix: str) -> pd.DataFrame:
        assert suffix == ".choice.csv"
        tried = {"case": "even", "clients": 4, "method": "good", "chosen": ["true", "false"]}
        tried |= {"setting": ["good", "other"], "parameter": "rate, kind"}
        return pd.DataFrame(tried | {"value": ["1, a", "2, b"], "criterion_mean": [0.8, 0.7]})

    @property
    def metrics(self) -> pd.DataFrame:
        """The setting that is better in the mean is worse in the first trial of each three."""
        of_all = {"phase": "final", "metric": "accuracy", "client": np.nan, "model_name": "cnn"}
        rows = [
            {"split": split, "setting": setting, "trial": trial, **of_all}
            | {"value": (level if trial % 3 else first) - lower}
            for setting, first, level in (("good", 0.6, 0.9), ("other", 0.9, 0.6))
            for trial in range(TRIALS)
            for split, lower in (("client_validation", 0.0), ("test", 0.1))
        ]
        return pd.DataFrame(rows)


def made(*parts: Part, board: Board = BOARD) -> tuple[boards.BoardData, dict[str, boards.BoardRow]]:
    """The rows of all data sets together, or of the only one."""
    found = boards.board_data(board, parts)
    return found, {row.method.label: row for row in boards.board_rows(found)}


def table_of(found: boards.BoardData, rows: dict[str, boards.BoardRow]) -> pd.DataFrame:
    return boards.leaderboard(found, list(rows.values()))


CASES = {"even": LEVELS, "skewed": LEVELS, "two labels": LEVELS}


@pytest.fixture(scope="module")
def usual() -> tuple[boards.BoardData, dict[str, boards.BoardRow]]:
    return made(Part(CASES))


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_leaderboards_of_the_record_come_out_again(version: str, tmp_path: Path) -> None:
    """With classes by needs and what was measured, groups, scores, costs and ends of grids."""
    place = ROOT / "reports/record/paper"
    made = write_board(load_exhibits()["arena"], version, "paper", place, tmp_path / version)
    tables = [path for path in made if path.suffix == ".csv"]
    assert len(tables) == 3
    for path in tables:
        assert path.read_text() == (place / "arena" / path.name).read_text()


def test_methods_stand_in_groups_of_which_home_names_the_first_of_each_class(usual) -> None:
    _, rows = usual
    good, average, votes = (rows[label] for label in ("good", "average", "votes"))
    assert [one.standing.group for one in (good, rows["alike"], average, votes)] == [1, 1, 2, 1]
    assert good.standing.score.value == pytest.approx(0.75)
    for bound in ("pooled", "best"):
        assert rows[bound].unranked_reason == "a bound, which has no rank"
    assert (good.standing.verdict, average.standing.verdict) == ("better", "worse")
    assert good.drawn == "scenarios and trials"
    table = read_csv(csv_text(table_of(*usual)))
    above = table.set_index("method")["scenarios_above"]
    assert (above["good"], above["average"]) == (3, 0)
    shown = BoardView(ABOUT | {"missing": ["1-b"]}, table, pd.DataFrame())
    told = answer(shown)
    (first, *_) = told["leaders"]
    assert first == ("one model", "Digits", ["alike", "good"], "0.75", "0.25")  # group 1 alone
    assert dict(told["above"])["Digits"] == ["alike", "good", "votes"]
    assert made_from(shown.about) == "Made from 1 of 2 exhibits."
    assert answer(BoardView(shown.about, table.assign(group=np.nan), pd.DataFrame())) == {}


def test_failed_runs_and_missing_scenarios_give_no_rank_and_near_bounds_no_score() -> None:
    broken = Part(CASES)
    at = (broken.numbers["method"] == "alike") & (broken.numbers["metric"] == "accuracy")
    broken.numbers.loc[at, "by_trial"] = "0.8 nan 0.8"
    found, rows = made(broken)
    assert (rows["alike"].unranked_reason, rows["alike"].standing) == ("3 of 9 runs failed", None)
    table = table_of(found, rows).set_index("method")
    assert table.loc["alike", "failed"] == 3
    assert table.loc["alike", ["group", "Digits, even, 4 clients"]].isna().all()
    assert "alike" not in rows["good"].standing.not_significantly_different
    each, own = made(Part(CASES), board=BOARD.model_copy(update={"each_trial": True}))
    assert "good" not in {*boards.scenarios(each, own.values()).query("case == 'even'")["setting"]}
    _, rows = made(Part(CASES | {"fourth": {k: v for k, v in LEVELS.items() if k != "alike"}}))
    assert rows["alike"].unranked_reason == "run in 3 of 4 scenarios"
    assert rows["good"].standing.group == 1
    broken.numbers.loc[broken.numbers["metric"] == "forward_passes", "mean"] = np.nan
    assert made(broken)[1]["votes"].method == rows["votes"].method  # by the trials with numbers
    found, rows = made(Part(CASES | {"easy": LEVELS | {"pooled": 0.505}}))
    assert [scene.case for scene in found.scenes] == list(CASES)
    assert len(rows["good"].scenes) == 3
    assert "easy" in set(boards.scenarios(found, list(rows.values()))["case"])


def test_what_others_report_changes_no_other_row() -> None:
    """It is alone in a scenario of its class, and each is tested beside the best client."""
    cases = CASES | {"open": {k: v for k, v in LEVELS.items() if k != "votes"}}
    labels = ["sent votes", *(f"sent {number}" for number in range(4))]

    def beside(computed: str) -> dict[str, boards.BoardRow]:
        sent = [(computed, Part({case: {label: 0.81} for case in cases})) for label in labels]
        # of a class that was run in three of the four scenarios
        numbers = sent[0][1].numbers
        numbers.loc[numbers["metric"] == "forward_passes", ["mean", "by_trial"]] = [4.0, "4 4 4"]
        found = boards.board_data(BOARD, [Part(cases)], entered=sent)
        return {row.method.label: row for row in boards.board_rows(found)}

    _, alone = made(Part(cases))
    reported = beside("reported")
    assert {label: reported[label] for label in alone} == alone
    assert reported["sent 0"].standing is None
    assert reported["sent 0"].unranked_reason == "reported by others, not verified"
    verified = beside("verified")
    assert verified["votes"].unranked_reason == ""  # and not "run in 3 of 4 scenarios"
    assert verified["sent votes"].standing is not None
    assert len(verified["sent votes"].scenes) == 3


def test_other_data_a_missing_bound_and_metrics_of_other_settings_are_refused() -> None:
    frozen = BOARD.model_copy(update={"data": {"digits": "other"}})
    with pytest.raises(FedreproError, match="other data called digits"):
        made(Part(CASES), board=frozen)
    seven = Part(CASES)
    seven.about["seed"] = 7
    with pytest.raises(FedreproError, match="is of seed 7, not None as the leaderboard: compute"):
        boards.board_data(BOARD, [Part(CASES)], [("verified", seven)])
    with pytest.raises(FedreproError, match="has no 'pooled'"):
        made(Part({"even": {"average": 0.5, "good": 0.8}}))

    class Other(Part):
        @property
        def metrics(self) -> pd.DataFrame:
            return super().metrics.assign(value=0.5)

    with pytest.raises(FedreproError, match="the metrics lack the settings of 'good'"):
        made(Other(CASES))


def test_a_method_that_failed_on_the_first_data_has_the_class_of_the_next() -> None:
    lost = Part(CASES, data="Ovals")
    lost.numbers.loc[lost.numbers["method"] == "votes", ["mean", "by_trial"]] = (
        np.nan,
        "nan nan nan",
    )
    kinds = {
        made(*parts)[1]["votes"].method.kind for parts in ((Part(CASES),), (lost, Part(CASES)))
    }
    assert kinds == {made(Part(CASES))[1]["votes"].method.kind}


def test_each_data_set_stands_by_itself_and_counts_alike_among_all() -> None:
    """Three scenarios of one, and one of each of two others, where `good` is below average."""
    low = {"even": LEVELS | {"good": 0.3}}
    found, _ = made(Part(CASES), Part(low, data="Shapes"), Part(low, data="Ovals"))
    good = {row.data: row for row in boards.board_rows(found) if row.method.label == "good"}
    scores = [row.standing.score.value for row in good.values()]
    assert scores == pytest.approx([0.75, -0.5, -0.5, (0.75 - 0.5 - 0.5) / 3])
    assert list(good) == ["Digits", "Shapes", "Ovals", "all"]
    everywhere, single = good["all"], good["Shapes"]
    assert everywhere.drawn == "data sets and trials"
    assert everywhere.standing.verdict == "not shown"
    assert (single.drawn, single.standing.group) == ("trials", None)  # a single scenario
    page = board_part(shown_as(found))
    assert "In these intervals trials are drawn again. Fewer than three scenarios" in page
    assert "In these intervals data sets and trials are drawn again." in page


def board_part(shown: BoardView, later: str = "") -> str:
    return rendered("board.md", up="../", shown=shown, links={}, guide="", later=later)


ABOUT = {"key": "arena/1", "board": BOARD.model_dump(), "parts": ["1-a"]}
ABOUT |= {"missing": [], "without_score": []}


def shown_as(found: boards.BoardData) -> BoardView:
    rows = boards.board_rows(found)
    made = (boards.leaderboard, boards.seconds, boards.scenarios)
    return BoardView(ABOUT, *(read_csv(csv_text(of(found, rows))) for of in made))


def test_a_page_says_what_another_test_gives_and_what_supersedes_it(usual) -> None:
    """Wilcoxon's signed ranks tell nothing apart in three scenarios, whatever was measured."""
    first = shown_as(usual[0])
    page = board_part(first)
    assert "Other first groups: Wilcoxon&#x27;s signed ranks" in page
    assert "gives alike, good and average (one model)" in page
    assert "Nemenyi" in page
    later = {"key": "arena/2", "board": BOARD.model_copy(update={"supersedes": "1"}).model_dump()}
    second = BoardView(ABOUT | later, first.table, first.times)
    half = BoardView(second.about | {"missing": ["arena/2-c"]}, first.table, first.times)
    assert superseded_by(first, [first, second]) == "arena/2"
    for one, others in ((first, [first]), (second, [first, second]), (first, [first, half])):
        assert superseded_by(one, others) == ""
    assert "Superseded by arena/2" in board_part(first, "arena/2")
    assert "Superseded" not in page


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(Config(), {"arena": load_exhibits()["arena"]}, "paper")


def test_the_ground_is_as_it_is_written_and_a_changed_one_is_refused(plan: Plan) -> None:
    assert all(board.ground for board in plan.files["arena"].boards.values())
    require_frozen(plan, "arena")
    file, name = plan.files["arena"], "1-perceptron"

    def changed(**settings: object) -> Plan:
        exhibits = file.exhibits | {name: file.exhibits[name] | settings}
        own = ExhibitFile.model_validate(file.model_dump() | {"exhibits": exhibits})
        return Plan(Config(), {"arena": own}, "paper")

    with pytest.raises(FedreproError, match="add it as arena/2"):
        require_frozen(changed(trials=6), "arena")
    methods = [*file.defaults["methods"], {"name": "average", "label": "once more"}]
    require_frozen(changed(methods=methods), "arena")


def test_a_methods_own_settings_are_tried_and_one_without_is_refused() -> None:
    def made(name: str, **given: object) -> list[dict[str, object]]:
        choose = {"metric": "accuracy", "split": "client_validation"}
        exhibit = small(
            partition={"name": "iid", "validation": 20, "validation_at": "clients"},
            training={"name": "sgd", "shared_init": True},
            methods=[{"name": name, "label": "m", "settings": "grid", "choose": choose, **given}],
        )
        return [dict(setting.method.values) for setting in exhibit.measures[0].settings]

    found = made("task_arithmetic")
    assert [one["scale"] for one in found] == [0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0]
    assert len({(one["alpha"], one["ridge"]) for one in made("regmean")}) == 8
    both = made("task_arithmetic", scale=(0.2, 0.4), batchnorm=["average", "recalibrate"])
    assert {(one["scale"], one["batchnorm"]) for one in both} == {
        (scale, rule) for scale in (0.2, 0.4) for rule in ("average", "recalibrate")
    }
    assert {one["alpha"] for one in made("regmean", alpha=0.3)} == {0.3}


def test_no_mark_is_cut_by_an_edge() -> None:
    place = ROOT / "reports/record/paper/arena"
    given = read_json(place / "1.json")["board"], pd.read_csv(place / "1.csv")
    with rules():
        drawn = bytes_up(*given)
        drawn.canvas.draw()
    for axes in drawn.axes:
        box = axes.get_window_extent()
        for mark in (line for line in axes.lines if line.get_marker() != "None"):
            _, y = axes.transData.transform(mark.get_xydata()[0])
            half = mark.get_markersize() / 2**0.5 * drawn.dpi / 72  # a diamond's
            assert box.y0 <= y - half < y + half <= box.y1
    for own in ({"score": np.nan}, {"score_low": -np.inf, "score_high": np.inf}):
        assert pictures(given[0], given[1].assign(**own))


def test_a_method_in_rounds_is_on_no_ground_of_one_exchange():
    """And one of a single exchange is on all of them, by one line."""
    file = load_exhibits()["arena"]

    def planned(rounds, **more):
        entry = {"name": "fedavg", "label": "mine", "rounds": rounds, "fraction": 1.0, **more}
        return Plan(Config(also={"arena": [entry]}), {"arena": file}, "paper")

    plan, once = planned(20), planned(1)
    parts = set(plan.files["arena"].parts("1", "paper"))
    assert {key for key, label in plan.without if label == "mine"} >= parts
    told = str(plan.without[min(parts), "mine"])
    assert told.startswith("arena/1 compares methods of one exchange, and method 'fedavg' runs for")
    assert told.endswith("give it rounds: 1")
    chosen = planned(1, proximal=[0.0, 0.1], choose="pooled_train")
    assert "not by pooled_train: leave out `choose`" in str(chosen.without[min(parts), "mine"])
    assert any("goes without 'mine'" in sentence for sentence in plan.mistakes)
    for made, keys in ((plan, ["arena/rounds"]), (once, parts)):
        assert all("mine" in {m.label for m in made.exhibit(key).measures} for key in keys)
    assert not once.without
    require_frozen(once, "arena")
    sent = exhibit_file_of(file, {"name": "fedavg", "rounds": 20})
    with pytest.raises(FedreproError, match="compares methods of one exchange"):
        Plan(Config(), {"arena": sent}, "paper").exhibit(min(parts))
