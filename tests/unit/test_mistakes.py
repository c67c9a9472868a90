"""A mistake in one exhibit is told to who asks for it, and blocks no other."""

from __future__ import annotations

import pytest
from synthetic import FILES as read_files
from synthetic import plan, undrawn, workplace

from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.verdicts.printed_verdicts import leave_out_mistaken, require_printed
from fedrepro.planning.config import Config, ExhibitFile, load_exhibits, table_names
from fedrepro.planning.plan import Plan, require_frozen
from fedrepro.stages.figures_and_pages import draw_board as board

__all__ = ["undrawn", "workplace"]
FILES = read_files()


def broken(paper: str, name: str, **settings: object) -> dict[str, ExhibitFile]:
    """The repository's files with other settings of one exhibit."""
    file = FILES[paper]
    exhibits = file.exhibits | {name: file.exhibits[name] | settings}
    return FILES | {paper: file.model_copy(update={"exhibits": exhibits})}


@pytest.mark.parametrize("scale", ["tiny", "quick", "paper"])
def test_the_exhibits_of_the_repository_have_none(scale):
    assert plan(scale).mistakes == []


@pytest.mark.parametrize(
    "settings",
    [{"drawing": "pie"}, {"methods": [{"name": "pfmn"}]}, {"at": {"tiny": 3}}, {"scales": "all"}],
)
def test_all_others_are_planned_as_before(settings):
    files = broken("pfnm", "figure-3a", **settings)
    whole, made = plan(), Plan(Config(), files, "tiny")
    assert set(whole.exhibits) - set(made.exhibits) == {"pfnm/figure-3a"} == set(made.broken)
    assert [e.key for e in made.selected] == [e.key for e in whole.selected]
    assert made.metrics_files(made.exhibits["pfnm/figure-2a"]) == whole.metrics_files(
        whole.exhibits["pfnm/figure-2a"]
    )
    (sentence,) = made.mistakes
    assert sentence.startswith("pfnm/figure-3a is left out: ")
    assert table_names(files) == table_names(FILES)


def test_who_asks_for_it_is_told():
    for wanted, name in (
        ("all", "figure-3a"),
        (["pfnm/figure-2a", "pfnm/figure-3a"], "figure-3a"),
        ("headline", "figure-2a"),
    ):
        files = broken("pfnm", name, drawing="pie")
        with pytest.raises(FedreproError, match="unknown drawing 'pie'"):
            Plan(Config(exhibits=wanted), files, "tiny").selected  # noqa: B018


SMALL = "paper: mine\ntitle: t\nsource: s\nexhibits:\n  one: {drawing: [}\n"


@pytest.fixture
def unread(tmp_path, monkeypatch):
    """Files of one's own that cannot be read, one of them in the place of FedAvg's."""
    (tmp_path / "config/exhibits").mkdir(parents=True)
    (tmp_path / "config/exhibits/mine.yaml").write_text(SMALL)
    (tmp_path / "config/exhibits/fedavg.yaml").write_text("paper: [")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config/exhibits/mine.yaml"


def test_a_file_that_cannot_be_read_hides_its_own_exhibits_alone(unread, capsys):
    files = load_exhibits()
    assert set(FILES) - set(files) == {"fedavg"}
    assert set(files.unread) == {"fedavg", "mine"}
    whole, made = plan(), Plan(Config(), files, "tiny")
    assert [e for e in whole.exhibits if not e.startswith("fedavg/")] == [*made.exhibits]
    made = Plan(Config(), files, "paper")
    require_printed(made)
    require_frozen(made, "arena")
    told = r"exhibits/mine\.yaml is not valid YAML: .*line 5"
    unread.with_name("fedavg.yaml").unlink()
    files = load_exhibits()
    for wanted in ("all", "headline", ["pfnm/figure-2a", "mine/one"]):
        with pytest.raises(FedreproError, match=told):
            Plan(Config(exhibits=wanted), files, "tiny").selected  # noqa: B018
    with pytest.raises(FedreproError, match=told):
        board("mine/1", "tiny", unread.parent, unread.parent / "1")
    assert main(["record", "mine/one"]) == 2
    (unread.parents[1] / "config.yaml").write_text("seed: 0")
    assert main(["exhibits"]) == 0
    assert "exhibits of mine are left out: " in capsys.readouterr().out


@pytest.mark.usefixtures("workplace")
def test_printed_values_and_boards_of_others_are_checked_as_before():
    printed = Plan(Config(), broken("fedavg", "table-1", drawing="pie"), "paper")
    require_printed(printed)
    key = FILES["arena"].parts("1", "paper")[0]
    made = Plan(Config(), broken("arena", key.partition("/")[2], drawing="pie"), "paper")
    require_frozen(made, "arena")
    with pytest.raises(FedreproError, match="unknown drawing 'pie'"):
        made.exhibit(key)


HEAD = "exhibit,cell,method,metric,split,value,sd,trials,note\n"
NOWHERE = "table-1,case=nobody,FedAvg,accuracy,test,0.9,,,\n"


@pytest.fixture
def own_published(tmp_path, monkeypatch):
    """The folder of what papers print, and say, as one's own files."""
    folder = tmp_path / "config/published"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("scale", "file", "content", "told"),
    [
        ("paper", "fedavg.csv", HEAD + NOWHERE, "line 2"),
        ("tiny", "fedavg.csv", "exhibit;cell\n", "its columns are"),
        ("tiny", "fedavg.csv", b"exhibit\xff", "cannot be read"),
        ("quick", "fedavg.yaml", "claims: [", "is not valid YAML"),
    ],
)
def test_what_a_paper_prints_or_says_hides_its_own_exhibits_alone(
    own_published, scale, file, content, told
):
    (own_published / file).write_bytes(content.encode() if isinstance(content, str) else content)
    made = Plan(Config(exhibits=["pfnm/figure-2a"]), FILES, scale)
    leave_out_mistaken(made)
    assert [exhibit.key for exhibit in made.selected] == ["pfnm/figure-2a"]
    (sentence,) = made.mistakes
    assert sentence.startswith(f"exhibits of fedavg are left out: config/published/{file}")
    assert told in sentence
    assert made.splits == plan(scale).splits  # runs that others share are measured as before
    asked = Plan(Config(exhibits=["fedavg/table-1"]), FILES, scale)
    leave_out_mistaken(asked)
    with pytest.raises(FedreproError, match=told):
        asked.selected  # noqa: B018


@pytest.mark.usefixtures("workplace")
def test_a_changed_ground_hides_its_own_leaderboard_alone():
    made = Plan(
        Config(exhibits=["pfnm/figure-2a"]), broken("arena", "1-perceptron", trials=6), "paper"
    )
    leave_out_mistaken(made)
    assert [exhibit.key for exhibit in made.selected] == ["pfnm/figure-2a"]
    (sentence,) = made.mistakes
    assert "the ground of arena/1 changed" in sentence
