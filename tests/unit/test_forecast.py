"""What a target will take: jobs counted, seconds from what was measured before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic import FILES, KEY, SOURCE, plan, workplace, write_runs, write_training_times

from fedrepro.cli.main import main
from fedrepro.core.checksummed_files import write_json, write_table
from fedrepro.core.registry import components
from fedrepro.data.prepared import Arrays, write_prepared
from fedrepro.planning.config_files import Config
from fedrepro.planning.forecast import _network, forecast, parse_target, trained_on
from fedrepro.planning.plan import Plan

__all__ = ["workplace"]
pytestmark = pytest.mark.usefixtures("workplace")


def of(target, files=None, config=None):
    scale, key = parse_target(target, "quick")
    asked = Plan(config or Config(), files or FILES(), scale) if files or config else plan(scale)
    return forecast(asked, key)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("reports/paper/pfnm/figure-2a.svg", ("paper", "pfnm/figure-2a")),
        ("reports/tiny/index.html", ("tiny", None)),
        ("pfnm/figure-2a", ("quick", "pfnm/figure-2a")),
        ("paper", ("paper", None)),
    ],
)
def test_targets_are_paths_or_words(target, found):
    assert parse_target(target, "quick") == found


def test_jobs_whose_file_is_there_are_not_counted():
    before = of(f"reports/tiny/{KEY}.svg")
    runs = plan().exhibit(KEY).trials
    assert before.jobs["aggregate"] + before.jobs["federate"] == len(runs)
    assert (before.jobs["exhibit"], before.hours) == (1, 0)
    assert before.unknown["aggregate"] == before.jobs["aggregate"]
    write_runs(plan())
    after = of(f"reports/tiny/{KEY}.svg")
    assert after.jobs["aggregate"] == after.jobs["federate"] == after.jobs["train"] == 0


def test_examples_are_counted_over_all_classes_of_prepared_data():
    """The file of prepared data has a count for each class, and no total."""
    scenario = next(job.scenario for job in plan().jobs_of(plan().exhibit(KEY)) if job.clients)
    sizes = {"train": 7, "validation": 0, "test": 2}
    x = {name: np.zeros((n, 8, 8), "f") for name, n in sizes.items()}
    y = {split: np.arange(len(rows)) % 2 for split, rows in x.items()}
    folder = plan().dataset(scenario.dataset)
    write_prepared(folder, Arrays(x, y, 1.0, (8, 8), ("a", "b")), scenario.dataset, {})
    assert _network(plan(), scenario)[1] == 7
    assert of(f"reports/tiny/{KEY}.svg").jobs["train"] > 0


def test_seconds_follow_the_timings_of_finished_jobs_on_the_same_device():
    write_training_times(plan(), seconds=3.0)
    for path in Path("results").rglob("local.parquet"):
        path.unlink()
    found = of(f"reports/tiny/{KEY}.svg")
    assert found.seconds["train"] > 3.0
    assert found.unknown["train"] == 0
    cuda = of(f"reports/tiny/{KEY}.svg", config=Config(device="cuda"))
    assert cuda.unknown["train"] == cuda.jobs["train"]


def test_jobs_of_a_method_are_expected_to_take_as_long_as_its_finished_ones():
    """Not as long as those of other methods in the same stage."""
    write_runs(plan())
    trials = plan().exhibit(KEY).trials.items()
    runs = [(run.method.name, Path(file)) for run, n in trials for file in plan().run_files(run, n)]
    next(file for name, file in runs if name == "pfnm").unlink()
    found = []
    for seconds in (1.0, 50.0):
        for name, file in runs:
            took = seconds if name == "pfnm" else 1.0
            times = {"trial": [0], "client": [0], "seconds": [took]}
            write_table(file.with_name("timings.parquet"), times, "timings", SOURCE)
        found.append(of(f"reports/tiny/{KEY}.svg").seconds["aggregate"])
    assert found[1] == pytest.approx(50.0 * found[0])


FASHION = "paper/arena/1-fashion-mnist-skewed"


@pytest.mark.parametrize(
    ("recorded", "stage", "key", "times"),
    [
        ("tiny/pfnm/figure-2a", "aggregate", "tiny/pfnm/figure-2a", 1.0),
        # MNIST for a network with 3072 and not 784 inputs, 10 classes, 50,000 and not 60,000
        # examples, and as many trials
        ("paper/pfnm/figure-2a", "federate", "paper/pfnm/figure-2c", 154_160 / 39_760 * 50 / 60),
        # as many images of one form; and multiplications of LeNet for an image of another form
        (FASHION, "train", "paper/arena/1-mnist-skewed", 1.0),
        (FASHION, "train", "paper/arena/1-cifar10-skewed", 651_720 / 281_640 * 50 / 60),
        ("tiny/pfnm/figure-2a", "", "tiny/pfnm/figure-2a", 0.0),
    ],
)
def test_a_recorded_run_counts_by_multiplications(recorded, stage, key, times):
    about = {"run": {"seconds": {stage: 60.0}} if stage else {"machine": {}}}
    write_json(f"reports/record/{recorded}.json", about)
    assert of(f"reports/{key}.svg").hours * 3600 == pytest.approx(60 * times)


def test_the_command_says_all_of_it(capsys):
    assert main(["plan", f"reports/tiny/{KEY}.svg"]) == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("hours of one core", "no measurement yet", "not known"))
    about = {"run": {"seconds": {"federate": 36_000.0}}}
    write_json(f"reports/record/tiny/{KEY}.json", about)
    assert main(["plan", f"reports/tiny/{KEY}.svg"]) == 0
    assert "at least 10.00 hours of one core" in capsys.readouterr().out


def test_rounds_count_what_clients_train_on_and_data_of_the_server_are_prepared_too():
    assert of("reports/paper/arena/1-mnist-skewed.html").jobs["prepare"] == 2  # and Fashion-MNIST
    training = components("training")["sgd"].spec({"batch_size": 10})

    def on(name, **values):
        method = components("method")[name].spec({"rounds": 4, "fraction": 0.5, **values})
        return trained_on(method, training, held=60, clients=8)

    assert on("fedavg", epochs=3) == 4 * 4 * 3 * 60
    assert on("fedavg", epochs=3, steps=2) == 4 * 4 * 2 * 10
    assert on("fedavg", fraction=0.0) == 4 * 60  # one client takes part
