"""The typed config, sentences for what it does not allow, and mistakes that block nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from synthetic import FILES as read_files
from synthetic import ROOT, plan, undrawn, workplace

from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.core.yaml_text import parse_yaml
from fedrepro.numbers.verdicts.claim_verdicts import load_claims
from fedrepro.numbers.verdicts.verdicts_on_printed_values import leave_out_mistaken, require_printed
from fedrepro.planning import config_files as configs
from fedrepro.planning.plan import Plan, require_frozen
from fedrepro.stages.figures_claims_and_pages import draw_board as board


def test_the_repositorys_config_is_valid_the_environment_wins_and_one_exhibit_needs_no_list(
    monkeypatch,
):
    assert configs.load_config(ROOT / "config/config.yaml") == configs.Config()
    plan = Plan(configs.Config(exhibits="pfnm/figure-2a"), configs.load_exhibits(), "tiny")
    assert [one.key for one in plan.selected] == ["pfnm/figure-2a"]
    for set_there, used in (("", "here"), ("there", "there")):
        monkeypatch.setenv("FEDREPRO_MIRROR", set_there)
        assert configs.Config(mirror="here").mirror_folder() == used


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"scael": "quick"}, "unknown key 'scael' in config/config.yaml: did you mean 'scale'"),
        ({"scale": "huge"}, "'scale' is 'huge'"),
        ({"seed": -1}, "'seed' is -1"),
        ({"granularity": {"clients_per_job": 0}}, "clients_per_job"),
        ({"granularity": {"trials_per_job": 10**20}}, "'granularity.trials_per_job' is 10+; "),
        ({"exhibits": "headlin"}, "'exhibits' is 'headlin'; input should be 'headline' or"),
        ({"exhibits": 3}, "'exhibits' is 3; .*; or input should be a valid list"),
    ],
)
def test_bad_config_is_a_sentence(values, sentence):
    with pytest.raises(FedreproError, match=sentence):
        configs.validated(configs.Config, values, "config/config.yaml")


@pytest.mark.parametrize(
    "read",
    [configs.load_config, load_claims, lambda path: configs.load_exhibits(path.parent)["mine"]],
)
def test_a_doubled_key_is_a_sentence_in_every_file(tmp_path, read):
    """An exhibit that is given the name of another would be lost."""
    (tmp_path / "mine.yaml").write_text("seed: 1\nscale: tiny\nseed: 2\n")
    with pytest.raises(FedreproError, match=r"mine.yaml is not valid YAML: the key 'seed' stands"):
        read(tmp_path / "mine.yaml")


def test_files_that_are_missing_or_broken_are_sentences(tmp_path):
    sentence = "is missing; start in a folder that `fedrepro start FOLDER` made"
    with pytest.raises(ValueError, match="should match pattern"):  # 7 may be a leaderboard
        configs.ExhibitFile(paper="a", title="", source="", exhibits={"7": {}})
    with pytest.raises(FedreproError, match=sentence):
        configs.load_config(tmp_path / "config.yaml")
    for text, sentence in (("a: [", "is not valid YAML"), ("text", "must hold keys and values")):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(FedreproError, match=sentence):
            configs.load_config(tmp_path / "config.yaml")
    with pytest.raises(FedreproError, match="no exhibit files"):
        configs.load_exhibits(tmp_path / "nowhere")
    (tmp_path / "config.yaml").write_text("paper: p\ntitle: t\nsource: s\nexhibits: {}\n")
    with pytest.raises(FedreproError, match="paper must be 'config', not 'p'"):
        configs.load_exhibits(tmp_path)["config"]


def test_mappings_merge_and_a_missing_key_says_where():
    below = {"dataset": {"name": "mnist", "validation": 5}, "sweep": {"a": [1]}, "trials": 2}
    for change, whole in (
        ({"dataset": {"name": "digits"}}, {"dataset": {"name": "digits"}}),
        ({"dataset": {"validation": 6}}, {"dataset": {"name": "mnist", "validation": 6}}),
        ({"sweep": {"a": [2]}, "trials": 3}, {"sweep": {"a": [2]}, "trials": 3}),
    ):
        assert configs.merge(below, change) == below | whole
    file = configs.ExhibitFile(paper="p", title="", source="", exhibits={"f": {"title": "x"}})
    with pytest.raises(FedreproError, match=r"config/exhibits/p.yaml, f at scale quick: the key"):
        file.settings("f", "quick")


def test_python_of_a_paper_that_fails_hides_this_paper_alone(monkeypatch):
    def broken(paper):
        return {"paper": paper}["exhibits"]

    monkeypatch.setattr("fedrepro.planning.config_files.exhibits_of", broken)
    files = configs.load_exhibits()
    readable = {path.parent.name for path in ROOT.glob("src/fedrepro/papers/*/exhibits.yaml")}
    assert set(files) == readable
    for paper in files.unread:
        with pytest.raises(FedreproError, match=r"\.py cannot be read \(KeyError: 'exhibits'\)"):
            files[paper]


def test_exhibits_as_yaml_say_the_same(tmp_path):
    files = configs.load_exhibits()
    for paper, file in files.items():
        (tmp_path / f"{paper}.yaml").write_text(file.as_yaml(), encoding="utf-8")
    for paper, again in configs.load_exhibits(tmp_path).items():
        assert again.model_dump() == files.pop(paper).model_dump()
    assert not files


@pytest.mark.parametrize(
    "bad", ["a: [", "\t- x", "*a", "2001-99-99", "!!python/object:os.system x", f"a: {'9' * 5000}"]
)
def test_what_is_not_yaml_is_one_line(bad):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_yaml(bad)


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ("a: 1\nb: 2\na: 3", 3),
        ("x:\n- {c: 1}\n- {b: 1,\n   b: 1}", 4),
        ("1: a\n0x1: b", 2),
        ("a: &x {b: 1}\nc: {<<: *x, <<: *x}", 2),
        ("figure-2a: {}\n'figure-2a': {}", 2),
    ],
)
def test_a_key_that_stands_twice_is_refused(bad, line):
    with pytest.raises(ValueError, match=f"twice in one place, the second time in line {line}"):
        parse_yaml(bad)


def test_a_key_of_its_own_goes_before_a_merged_one():
    """Also where the merged one is itself merged, and read after what it is merged into."""
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, d: 2}")["c"] == {"b": 1, "d": 2}
    text = "a: {b: {c: &x {<<: &y {d: 1, e: 1}, d: 2}}}\nf: {<<: *x, e: 3}\ng: {<<: [*x, *y]}"
    assert parse_yaml(text) == yaml.safe_load(text)
    assert parse_yaml(text)["f"] == {"d": 2, "e": 3}


__all__ = ["undrawn", "workplace"]
FILES = read_files()


def broken(paper: str, name: str, **settings: object) -> dict[str, configs.ExhibitFile]:
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
    whole, made = plan(), Plan(configs.Config(), files, "tiny")
    assert set(whole.exhibits) - set(made.exhibits) == {"pfnm/figure-3a"} == set(made.broken)
    assert [e.key for e in made.selected] == [e.key for e in whole.selected]
    own, other = (of.metrics_files(of.exhibits["pfnm/figure-2a"]) for of in (made, whole))
    assert own == other
    (sentence,) = made.mistakes
    assert sentence.startswith("pfnm/figure-3a is left out: ")
    assert configs.table_names(files) == configs.table_names(FILES)


def test_who_asks_for_it_is_told():
    for wanted, name in (
        ("all", "figure-3a"),
        (["pfnm/figure-2a", "pfnm/figure-3a"], "figure-3a"),
        ("headline", "figure-2a"),
    ):
        files = broken("pfnm", name, drawing="pie")
        with pytest.raises(FedreproError, match="unknown drawing 'pie'"):
            Plan(configs.Config(exhibits=wanted), files, "tiny").selected  # noqa: B018


SMALL = "paper: mine\ntitle: t\nsource: s\nexhibits:\n  one: {headline: true, drawing: [}\n"


@pytest.fixture
def unread(tmp_path, monkeypatch):
    """Files of one's own that cannot be read, one of them in the place of FedAvg's."""
    (tmp_path / "config/exhibits").mkdir(parents=True)
    (tmp_path / "config/exhibits/mine.yaml").write_text(SMALL.replace("headline: true, ", ""))
    (tmp_path / "config/exhibits/fedavg.yaml").write_text("paper: [")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config/exhibits/mine.yaml"


def test_a_file_that_cannot_be_read_hides_its_own_exhibits_alone(unread, capsys):
    files = configs.load_exhibits()
    assert set(FILES) - set(files) == {"fedavg"}
    assert set(files.unread) == {"fedavg", "mine"}
    whole, made = plan(), Plan(configs.Config(), files, "tiny")
    assert [e for e in whole.exhibits if not e.startswith("fedavg/")] == [*made.exhibits]
    assert {e.paper for e in whole.selected} - {e.paper for e in made.selected} == {"fedavg"}
    made = Plan(configs.Config(), files, "paper")
    require_printed(made, "pfnm")
    require_frozen(made, "arena")
    told = r"exhibits/mine\.yaml is not valid YAML: .*line 5"
    unread.with_name("fedavg.yaml").unlink()
    files = configs.load_exhibits()
    for wanted in ("all", ["pfnm/figure-2a", "mine/one"]):
        with pytest.raises(FedreproError, match=told):
            Plan(configs.Config(exhibits=wanted), files, "tiny").selected  # noqa: B018
    with pytest.raises(FedreproError, match=told):
        board("mine/1", "tiny", unread.parent, unread.parent / "1")
    assert main(["record", "mine/one"]) == 2
    (unread.parents[1] / "config.yaml").write_text("seed: 0")
    assert main(["exhibits"]) == 0
    assert "exhibits of mine are left out: " in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_told_of_if_one_of_the_default_set_is_in_it(unread):
    unread.write_text(SMALL)
    with pytest.raises(FedreproError, match=r"exhibits/mine\.yaml is not valid"):
        Plan(configs.Config(), configs.load_exhibits(), "tiny").selected  # noqa: B018
    unread.unlink()
    unread.mkdir()
    with pytest.raises(FedreproError, match=r"exhibits/mine\.yaml: it is a folder"):
        Plan(configs.Config(), configs.load_exhibits(), "tiny").selected  # noqa: B018


@pytest.mark.usefixtures("workplace")
def test_printed_values_and_boards_of_others_are_checked_as_before():
    printed = Plan(configs.Config(), broken("fedavg", "table-1", drawing="pie"), "paper")
    require_printed(printed, "fedavg")
    key = FILES["arena"].parts("1", "paper")[0]
    made = Plan(configs.Config(), broken("arena", key.partition("/")[2], drawing="pie"), "paper")
    require_frozen(made, "arena")
    with pytest.raises(FedreproError, match="unknown drawing 'pie'"):
        made.exhibit(key)


HEAD = "exhibit,cell,method,metric,split,value,sd,trials,note\n"
NOWHERE = "table-1,case=nobody,FedAvg,accuracy,test,0.9,,,\n"


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
    tmp_path, monkeypatch, scale, file, content, told
):
    monkeypatch.chdir(tmp_path)
    Path("config/published").mkdir(parents=True)
    data = content.encode() if isinstance(content, str) else content
    Path("config/published", file).write_bytes(data)
    made = Plan(configs.Config(exhibits=["pfnm/figure-2a"]), FILES, scale)
    leave_out_mistaken(made)
    assert [exhibit.key for exhibit in made.selected] == ["pfnm/figure-2a"]
    (sentence,) = made.mistakes
    assert sentence.startswith(f"exhibits of fedavg are left out: config/published/{file}")
    assert told in sentence
    assert made.splits == plan(scale).splits  # runs that others share are measured as before
    asked = Plan(configs.Config(exhibits=["fedavg/table-1"]), FILES, scale)
    leave_out_mistaken(asked)
    with pytest.raises(FedreproError, match=told):
        asked.selected  # noqa: B018


@pytest.mark.usefixtures("workplace")
def test_a_changed_ground_hides_its_own_leaderboard_alone():
    made = Plan(
        configs.Config(exhibits=["pfnm/figure-2a"]),
        broken("arena", "1-perceptron", trials=6),
        "paper",
    )
    leave_out_mistaken(made)
    assert [exhibit.key for exhibit in made.selected] == ["pfnm/figure-2a"]
    (sentence,) = made.mistakes
    assert "the ground of arena/1 changed" in sentence
