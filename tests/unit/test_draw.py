"""Figures: every drawn number is in the csv, equal numbers give equal bytes."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from small_exhibits import small
from synthetic import (
    KEY,
    ORIGIN,
    REVISION,
    ROOT,
    SOURCE,
    draw,
    plan,
    plausible,
    tables_of,
    undrawn,
    workplace,
    write_runs,
)

from fedrepro.core.checksummed_files import read_json, read_provenance, read_table, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.drawings.lines_and_layout import figure, lines, rules
from fedrepro.drawings.style import FALLBACK_STYLES, LINE_STYLES, REFERENCES, family_of, line_styles
from fedrepro.numbers.exhibit_files import _components
from fedrepro.numbers.run_times import timings_of
from fedrepro.numbers.tables_and_selection import csv_text, read_csv, summarise
from fedrepro.planning.exhibit_methods import ExhibitMethod
from fedrepro.stages.figures_claims_and_pages import _require_current, draw_exhibit

__all__ = ["undrawn", "workplace"]
pytestmark = pytest.mark.usefixtures("workplace")


def numbers_of(made, values=plausible):
    found = summarise(made.exhibit(KEY), tables_of(made, KEY, values))
    return read_csv(csv_text(found.numbers))


def drawn(values=plausible) -> Figure:
    with rules():
        return figure(plan().exhibit(KEY), numbers_of(plan(), values))


def texts(found: Figure) -> str:
    return "\n".join(text.get_text() for text in found.findobj(lambda x: hasattr(x, "get_text")))


@pytest.fixture
def numbers(workplace):
    return numbers_of(plan())


def test_bands_are_one_sample_sd_and_looks_differ_by_colour_and_by_marker_with_dash(numbers):
    line = lines(plan().exhibit(KEY), numbers, "accuracy", "test")["U-Ens"]
    rows = numbers.query("method == 'U-Ens' and metric == 'accuracy' and split == 'test'")
    assert line.sd == rows["sd"].tolist()
    assert line.band[1] == (rows["mean"] + rows["sd"]).tolist()
    found = [*LINE_STYLES.values(), *FALLBACK_STYLES]
    assert len({look.colour for look in found}) == len(found)
    assert len({(look.marker, look.dash) for look in found}) == len(found)
    assert len({look.dash for look in REFERENCES.values()}) == len(REFERENCES)
    assert len(line_styles(plan().exhibit(KEY).measures)) == 11


def test_every_method_has_a_line_of_its_accuracy_and_those_of_one_size_share_a_named_one():
    found = drawn()
    labels = [measure.label for measure in plan().exhibit(KEY).measures]
    for axes in found.axes[:2]:
        assert sorted(line.get_label() for line in axes.lines) == sorted(labels)
    # distillation has fewer trials than the others
    named = ["KD (paired)" if label == "KD" else label for label in labels]
    assert [text.get_text() for text in found.legends[0].get_texts()] == named
    assert [line.get_label() for line in found.axes[2].lines] == [
        *("concatenation", "clients alone", "PFNM", "KD")
    ]
    together = "50·J: concatenation, PFNM unmatched, U-Ens, W-Ens"
    for words in (
        together,
        "50: clients alone, pooled training, D-SGD, parameter average",
        plan().exhibit(KEY).settings.title,
        "Digits (8×8) · 2 trials · KD: 1 trial",
    ):
        assert words in texts(found)

    def nothing_merged(token, clients, trial, metric, split):
        if metric == "hidden_units" and token.startswith("pfnm"):
            return 50.0 * clients
        return plausible(token, clients, trial, metric, split)

    found = drawn(values=nothing_merged)
    assert "PFNM" in [line.get_label() for line in found.axes[2].lines]
    assert together in texts(found)


def test_a_method_has_one_look_under_any_label_and_in_any_company():
    """Each method of the registry as a rival, alone and among all others."""
    found = components("method").items()
    specs = {n: m.spec(dict.fromkeys(m.params.keys() & {"rounds"}, 1)) for n, m in found}
    rivals = [
        ExhibitMethod(spec, name, None, None, False)
        for name, spec in specs.items()
        if family_of(name) == name
    ]
    together = line_styles(rivals)
    assert len(set(together.values())) == len(rivals)
    for measure in rivals:
        assert line_styles([replace(measure, label="mine")])["mine"] == together[measure.label]


def crowded(count):
    """A figure with so many methods more."""
    labels = [f"added method {at}" for at in range(count)]
    methods = [{"name": "average", "label": label} for label in ("parameter average", *labels)]
    exhibit = small(drawing="accuracy-and-size", size="hidden_units", methods=methods)
    rows = [
        {**p.values, "method": m.label, "metric": metric, "split": split, "mean": mean, "sd": 0.0}
        for p in exhibit.points
        for m in exhibit.measures
        for metric, split, mean in (("accuracy", "test", 0.5), ("hidden_units", "", 50.0))
    ]
    return exhibit, pd.DataFrame(rows)


def test_lines_of_one_method_differ_in_any_order_of_theirs():
    measures = crowded(20)[0].measures
    looks = line_styles(measures)
    assert len({(look.colour, look.marker, look.dash) for look in looks.values()}) == len(looks)
    few = measures[:12]
    assert len({look.colour for look in line_styles(few).values()}) == len(few)
    assert line_styles([few[0], *few[:0:-1]]) == line_styles(few)


@pytest.mark.parametrize("count", [0, 30])
def test_nothing_at_the_foot_is_cut_off_however_many_methods_there_are(count):
    exhibit, numbers = crowded(count)
    with rules():
        found = figure(exhibit, numbers)
        renderer = FigureCanvasAgg(found).get_renderer()
        boxes = [part.get_window_extent(renderer) for part in (*found.texts, *found.legends)]
    for box in boxes:
        assert found.bbox.x0 <= box.x0 <= box.x1 <= found.bbox.x1
        assert found.bbox.y0 <= box.y0 <= box.y1 <= found.bbox.y1
    foot, legend = boxes[-2:]
    assert foot.y1 <= legend.y0 + 3  # a frame has a little room around its letters


def test_a_swept_zero_can_be_drawn():
    exhibit, numbers = crowded(2)
    zero = numbers.assign(clients=numbers["clients"].replace(2, 0.0))
    several = zero["mean"].where(zero["metric"] != "hidden_units", 50.0 + zero["clients"])
    with rules():
        found = figure(exhibit, zero.assign(mean=several))
    assert "same" in texts(found)


def test_images_are_well_formed_and_the_same_in_a_process_with_other_defaults(numbers):
    """Neither the date, nor a user's matplotlibrc, nor the hash seed is in them."""
    exhibit = plan().exhibit(KEY)
    images = exhibit.settings.drawing.files(exhibit, {}, numbers)
    assert ET.fromstring(images[".svg"]).tag.endswith("svg")
    assert b"dc:date" not in images[".svg"]
    assert images[".png"].startswith(b"\x89PNG")
    Path("numbers.csv").write_text(csv_text(numbers))
    Path("matplotlibrc").write_text("lines.linewidth: 9\nfont.family: serif\nsavefig.dpi: 30\n")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests/unit')!r})\n"
        "from pathlib import Path; from synthetic import plan, KEY\n"
        "import fedrepro.stages.figures_claims_and_pages\n"
        "from fedrepro.numbers.tables_and_selection import read_csv\n"
        "exhibit, numbers = plan().exhibit(KEY), read_csv(Path('numbers.csv').read_text())\n"
        "images = exhibit.settings.drawing.files(exhibit, {}, numbers)\n"
        "[Path(f'other{suffix}').write_bytes(image) for suffix, image in images.items()]\n"
        "assert not {'matplotlib.pyplot', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for suffix, image in images.items():
        assert Path(f"other{suffix}").read_bytes() == image


def test_the_stage_writes_exactly_its_outputs_and_the_same_bytes_twice():
    base = draw(plan())
    before = {path.name: path.read_bytes() for path in base.parent.iterdir()}
    outputs = {".svg", ".png", ".csv", ".choice.csv", ".json", ".metrics.parquet"}
    assert {name.removeprefix(base.name) for name in before} == outputs
    assert read_provenance(read_table(f"{base}.metrics.parquet", "metrics"))["key"] == KEY
    draw(plan())
    assert {path.name: path.read_bytes() for path in base.parent.iterdir()} == before


@pytest.mark.usefixtures("undrawn")
def test_the_json_says_where_the_exhibit_comes_from():
    about = read_json(f"{draw(plan(seed=3))}.json")
    assert about["command"] == f"snakemake --cores 2 reports/tiny/{KEY}.svg"
    assert about["seed"] == 3
    assert about["data"][0]["sha256"] == "ab" * 32
    assert about["data"][0]["stand_in"] == "Digits (8×8) stand in for MNIST, the paper's data."
    assert about["scenario"]["partition"]["values"]["clients"] == "2, 4"
    assert about["scenario"]["training"]["values"]["epochs"] == "2"
    assert "pfnm;v" in " ".join(about["components"]["method"])
    assert about["settings"]["methods"][0]["sigma2"] == [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert set(about["methods"][0]["needs"]) == {"label_counts"}
    assert set(about["methods"][0]["discloses"]) == {"pooled_train_accuracy"}
    assert about["computed"] == [ORIGIN]
    assert set(about["drawn"]) == {"revision", "digest", "versions"}
    assert {"matplotlib", "pandas", "python"} <= set(about["drawn"]["versions"])
    assert not any(path.is_absolute() for path in timings_of(about))


@pytest.mark.usefixtures("undrawn")
def test_an_exhibit_says_of_its_runs_what_their_files_say():
    """Not what sources, machine and versions are now, nor what components the plan names now."""
    made = plan()
    write_runs(made)
    earlier = {**ORIGIN, "revision": "earlier", "device": "cuda (of the files)"}
    own = {"resolved": {"weights": ["kept;v0;sigma2~7"]}, "behind": [earlier]}
    for path in made.metrics_files(made.exhibit(KEY)):
        write_table(path, read_table(path, "metrics"), "metrics", {**SOURCE, **own})
    draw_exhibit(KEY, made, Path("out"))
    about = read_json("out.json")
    assert about["components"] == {"weights": ["kept;v0;sigma2~7"]}
    assert sorted(one["revision"] for one in about["computed"]) == [REVISION, "earlier"]


@pytest.mark.usefixtures("undrawn")
def test_runs_of_another_version_are_refused_where_snakemake_has_no_record_of_them():
    """As after a copy of `results` from a machine whose method had an earlier version."""
    made = plan()
    write_runs(made)
    run = next(run for run in made.exhibit(KEY).trials if run.method.name == "pfnm")
    (path,) = made.run_files(run, 1)

    def drawn_with(resolved):
        own = {**SOURCE, "resolved": {"method": [resolved]}}
        write_table(path, read_table(path, "metrics"), "metrics", own)
        draw_exhibit(KEY, made, Path(made.exhibit_file(KEY, "")))

    with pytest.raises(FedreproError, match=r"is of pfnm;v0.*: delete it"):
        drawn_with(run.method.resolved.replace(";v", ";v0."))
    drawn_with(run.method.resolved)
    data = {"name": "mnist", "validation": 200, "features": "centred"}
    tuned = small(dataset=data, methods=[{"name": "average", "label": "A", "tune": {}}])
    assert _components(tuned, [{"resolved": {}}]).keys() == {"feature", "tune"}
    with pytest.raises(FedreproError, match="m is of tune;v0, which is"):
        _require_current("x", {next(iter(tuned.trials)): {"m": {"tune": "tune;v0"}}})


def test_runs_on_different_data_are_refused():
    made = plan()
    write_runs(made)
    path = made.metrics_files(made.exhibit(KEY))[0]
    write_table(path, read_table(path, "metrics"), "metrics", {**SOURCE, "data": "cd" * 32})
    with pytest.raises(FedreproError, match="computed on different data called digits"):
        draw_exhibit(KEY, made, Path("out"))
