"""The workflow as a module of another one."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import loaded
import pytest

from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.jobs import log_path
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[2]
SNAKEFILE = """
configfile: "config/config.yaml"

onstart:
    open("theirs", "w").close()

module fedrepro:
    snakefile: "{root}/workflow/Snakefile"
    config: config{more}

use rule * from fedrepro as fedrepro_*
"""

pytestmark = pytest.mark.workflow


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def run(folder: Path, *words: str, more: str = "") -> loaded.Done:
    (folder / "Snakefile").write_text(SNAKEFILE.format(root=ROOT, more=more))
    own = {k: v for k, v in os.environ.items() if k != "FEDREPRO_PRELOAD"}
    return loaded.snakemake(folder, ["--cores", "1", *words], own)


def test_jobs_of_a_module_are_preloaded_and_handlers_of_both_run(folder):
    plan = Plan(Config(), load_exhibits(), "tiny")
    pairs = [pair for pair in plan.partitions(list(plan.exhibits)) if pair[0].name == "digits"][:2]
    targets = [plan.partition(*pair, plan.blocks(1)[0]) for pair in pairs]
    done = run(folder, "--config", "scale=tiny", "--", *targets)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (folder / "theirs").exists()
    log = (folder / log_path(str(Path(targets[0]).parent))).read_text()
    assert int(re.search(r"peak, (\d+) MiB", log)[1]) > 300  # with all packages loaded


@pytest.mark.parametrize(
    ("more", "config", "why"),
    [
        ('\n    replace_prefix: {"results/": "elsewhere/"}', "config/config.yaml", "takes no `pre"),
        ("", "other.yaml", "reads config/config.yaml, which is missing"),
    ],
)
def test_what_a_module_cannot_do_is_said_before_any_job(folder, more, config, why):
    (folder / "config/config.yaml").rename(folder / config)
    done = run(folder, "-n", "--configfile", config, "--config", "scale=tiny", more=more)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert why in said
    assert "Traceback" not in said
