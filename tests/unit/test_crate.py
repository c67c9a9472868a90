"""The record as a Provenance Run Crate: what it names, and that it is one."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from fedrepro.core.artifacts import read_json
from fedrepro.core.errors import FedreproError
from fedrepro.record.crate import VERSION, write_crate

ROOT = Path(__file__).parents[2]
RECORD = Path("reports/record")
KEY = "rm/table-1"
pytest.importorskip("rocrate", reason="rocrate is not installed")


@pytest.fixture
def crate(monkeypatch, tmp_path) -> Path:
    monkeypatch.chdir(ROOT)
    assert write_crate("paper", [KEY], tmp_path / "crate.zip") == 1
    return tmp_path / "crate.zip"


def described(crate: Path) -> dict[str, dict]:
    with zipfile.ZipFile(crate) as archive:
        graph = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
    return {entity["@id"]: entity for entity in graph}


def test_every_file_is_named_with_its_digest(crate):
    found = described(crate)
    with zipfile.ZipFile(crate) as archive:
        names = set(archive.namelist()) - {"ro-crate-metadata.json"}
        for name in names:
            digest = hashlib.sha256(archive.read(name)).hexdigest()
            assert found[name]["sha256"] == digest, name
    run = read_json(RECORD / f"paper/{KEY}.run.json")
    recorded = {f"{RECORD}/paper/{KEY}{suffix}": text for suffix, text in run["files"].items()}
    assert recorded.items() <= {name: found[name]["sha256"] for name in names}.items()
    assert {
        "workflow/Snakefile",
        "src/fedrepro/papers/rm/exhibits/__init__.py",
        "src/fedrepro/papers/rm/exhibits/printed.py",
        f"{RECORD}/paper/rm/claims.csv",
    } <= names


def test_an_exhibit_names_its_command_data_sources_and_stages(crate):
    found = described(crate)
    about = read_json(RECORD / f"paper/{KEY}.json")
    run = found[f"#run-{KEY}"]
    assert run["name"] == about["command"]
    objects = [found[one["@id"]] for one in run["object"]]
    assert {one["sha256"] for one in about["data"]} <= {one.get("sha256") for one in objects}
    assert {one["digest"] for one in about["computed"]} <= {
        one.get("identifier") for one in objects
    }
    stage = found[f"#federate-{KEY}"]
    assert "s of processor time on cpu of" in stage["description"]
    assert {one["@id"] for one in found[f"#engine-{KEY}"]["object"]} == {
        f"#control-federate-{KEY}",
        f"#control-exhibit-{KEY}",
    }


WORKFLOW = "https://bioschemas.org/ComputationalWorkflow"
RENAMED = {  # as version 1.1 has what rocrate names by a later one
    "ComputationalWorkflow": WORKFLOW,
    "FormalParameter": "https://bioschemas.org/FormalParameter",
    "input": f"{WORKFLOW}#input",
    "output": f"{WORKFLOW}#output",
}


@pytest.fixture
def offline(monkeypatch):
    """What the validator would ask a network for: the words of RO-Crate, as rocrate has them."""
    import requests
    import rocrate

    newer = read_json(Path(rocrate.__file__).parent / "data/ro-crate.jsonld")["@context"]
    own = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
    contexts = {VERSION: newer | RENAMED, "workflow-run": own}
    known = {name: json.dumps({"@context": own}).encode() for name, own in contexts.items()}

    def send(self, request, **_):
        answer = requests.Response()
        answer.request, answer.url = request, request.url
        found = [text for name, text in known.items() if f"/{name}/context" in request.url]
        answer.status_code = 200 if found else 404
        answer.raw = io.BytesIO(b"".join(found))
        answer.headers["Content-Type"] = "application/ld+json"
        return answer

    monkeypatch.setattr(requests.Session, "send", send)


def test_it_is_a_provenance_run_crate(crate, offline):
    validator = pytest.importorskip("rocrate_validator.services", reason="no roc-validator")
    from rocrate_validator.models import Severity, ValidationSettings

    settings = ValidationSettings(
        rocrate_uri=str(crate),
        profile_identifier="provenance-run-crate",
        requirement_severity=Severity.REQUIRED,
        no_cache=True,
    )
    found = validator.validate(settings)
    assert [f"{one.check.identifier}: {one.message}" for one in found.get_issues()] == []


def test_an_altered_file_goes_into_no_crate(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    for path in (RECORD / "paper").glob(f"{KEY}.*"):
        place = tmp_path / "record" / path.relative_to(RECORD)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    (tmp_path / f"record/paper/{KEY}.csv").write_text("0")
    with pytest.raises(FedreproError, match="altered"):
        write_crate("paper", [KEY], tmp_path / "crate.zip", tmp_path / "record")
    assert not (tmp_path / "crate.zip").exists()
