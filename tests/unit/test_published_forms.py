"""The forms of publishers that no mirror holds, on small files laid out as theirs are."""

from __future__ import annotations

import io
import lzma
import pickle
import tarfile
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedrepro.components.datasets.ham10000 import FILES
from fedrepro.components.datasets.speech_commands import FILE, KEYWORDS
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import parse_token
from fedrepro.data.prepared import SPLITS, Arrays


def arrays_of(token: str, raw: Path) -> Arrays:
    spec = parse_token("dataset", token)
    return spec.component.fn(raw, **spec.values)  # type: ignore[no-any-return]


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


# --------------------------------------------------------------------------------------- speech


def clip(hertz: float, seconds: float = 1.0, rate: int = 16_000) -> bytes:
    tone = np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((tone * 20_000).astype("<i2").tobytes())
    return buffer.getvalue()


def speech(**extra: bytes) -> dict[str, bytes]:
    """Two clips of four speakers for each keyword, and a word that is no keyword."""
    members = {
        f"./{word}/{speaker}_nohash_{number}.wav": clip(300 + 200 * number, 1 - 0.2 * number)
        for word in KEYWORDS
        for speaker in ("aa", "bb", "cc", "dd")
        for number in range(2)
    }
    members["./bed/aa_nohash_0.wav"] = clip(500)
    return {**members, **{f"./{name}": data for name, data in extra.items()}}


def test_the_publishers_speech_is_split_by_its_lists(tmp_path: Path) -> None:
    lists = {
        "validation_list.txt": "\n".join(
            f"{w}/bb_nohash_{n}.wav" for w in KEYWORDS for n in (0, 1)
        ),
        "testing_list.txt": "\n".join(f"{w}/cc_nohash_0.wav" for w in KEYWORDS) + "\nbed/x.wav",
    }
    write_tar(tmp_path / FILE, speech(**{k: v.encode() for k, v in lists.items()}))
    arrays = arrays_of("speech_commands", tmp_path)
    assert [np.bincount(arrays.y[s]).tolist() for s in SPLITS] == [[5] * 10, [2] * 10, [1] * 10]
    assert arrays.group_names == ("aa", "bb", "cc", "dd")
    assert set(arrays.group("validation")) == {1}
    assert set(arrays.group("test")) == {2}
    assert arrays.stand_in == ""


def test_a_tone_is_loud_in_its_band_and_a_short_clip_ends_in_silence(tmp_path: Path) -> None:
    write_tar(tmp_path / FILE, speech())
    arrays = arrays_of("speech_commands", tmp_path)
    x = np.concatenate([arrays.x[split] for split in SPLITS])
    assert (x.dtype, x.min(), x.max()) == (np.float32, 0, 1)
    loudest = {int(image[:, 5].argmax()) for image in x}
    assert len(loudest) == 2
    assert max(loudest) < 8
    short = [image for image in x if image[:, -4:].max() == 0]
    assert len(short) == 40
    assert arrays.stand_in.startswith("80 clips of 4 speakers")


def test_the_settings_of_a_spectrogram_are_parameters(tmp_path: Path) -> None:
    write_tar(tmp_path / FILE, speech())
    arrays = arrays_of("speech_commands+hop~160+mels~40+window~400", tmp_path)
    assert arrays.shape == (40, 100)


@pytest.mark.parametrize(
    ("bad", "words"), [(clip(300, rate=8000), "not 16-bit mono"), (b"RIFF", "not a wav file")]
)
def test_a_clip_of_another_form_is_named(tmp_path: Path, bad: bytes, words: str) -> None:
    write_tar(tmp_path / FILE, {**speech(), "./yes/aa_nohash_0.wav": bad})
    with pytest.raises(FedreproError, match=f"{FILE} cannot be read .*aa_nohash_0.wav is {words}"):
        arrays_of("speech_commands", tmp_path)
    write_tar(tmp_path / FILE, {"./yes/aa_nohash_0.wav": clip(300)})
    with pytest.raises(FedreproError, match="all ten keywords"):
        arrays_of("speech_commands", tmp_path)


# ------------------------------------------------------------------------------------- ham10000


def jpeg(shade: int) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (600, 450), (shade, 100, 50)).save(buffer, "JPEG")
    return buffer.getvalue()


def write_ham(raw: Path, separator: str = "\t") -> None:
    """Twenty lesions a class, two photographs each, in two zips and a table as at Dataverse."""
    rows, pictures = [["lesion_id", "image_id", "dx", "age"]], {}
    for label, name in enumerate(("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")):
        for number in range(40):
            image = f"ISIC_{len(pictures):07}"
            rows.append([f"HAM_{label}_{number // 2:03}", image, name, "50.0"])
            pictures[image] = jpeg(label * 30 + number)
    half = len(pictures) // 2
    for file, part in zip(FILES["publisher"], (slice(half), slice(half, None)), strict=False):
        with zipfile.ZipFile(raw / file, "w") as archive:
            for image, data in list(pictures.items())[part]:
                archive.writestr(f"{image}.jpg", data)
    lines = [separator.join(f'"{cell}"' for cell in row) for row in rows]
    (raw / FILES["publisher"][2]).write_text("\n".join(lines))


@pytest.mark.parametrize("separator", ["\t", ","])
def test_ham10000_is_read_as_its_publisher_ships_it(tmp_path: Path, separator: str) -> None:
    write_ham(tmp_path, separator)
    token = "ham10000+balance~none+size~16+source~publisher"
    arrays = arrays_of(token, tmp_path)
    assert arrays.stand_in == ""
    assert [arrays.y[split].size for split in SPLITS] == [224, 28, 28]
    for split in SPLITS:
        shade = arrays.x[split][:, 0].mean((1, 2))
        number = shade - 30 * arrays.y[split]
        assert number.min() > -3
        assert number.max() < 43
        lesions = [arrays.group_names[g] for g in arrays.group(split)]
        expected = [f"HAM_{y}" for y in arrays.y[split]]
        assert [lesion[:5] for lesion in lesions] == expected


def test_ham10000_is_balanced_where_it_is_asked_for(tmp_path: Path) -> None:
    write_ham(tmp_path)
    end = "per_class~100+size~16+source~publisher"
    both = arrays_of(f"ham10000+{end}", tmp_path)
    assert [np.bincount(both.y[s]).tolist() for s in SPLITS] == [[80] * 7, [10] * 7, [10] * 7]
    train = arrays_of(f"ham10000+balance~train+{end}", tmp_path)
    assert [np.bincount(train.y[s]).tolist() for s in SPLITS] == [[80] * 7, [4] * 7, [4] * 7]
    # a class with more photographs than asked for gives some of them, unchanged
    few = arrays_of("ham10000+per_class~20+size~16+source~publisher", tmp_path)
    assert np.bincount(few.y["train"]).tolist() == [16] * 7
    again = arrays_of(f"ham10000+{end}", tmp_path)
    assert all(np.array_equal(both.x[s], again.x[s]) for s in SPLITS)


def test_ham10000_needs_a_photograph_for_every_row(tmp_path: Path) -> None:
    write_ham(tmp_path)
    token = "ham10000+source~publisher"
    table = tmp_path / FILES["publisher"][2]
    good = table.read_text()
    table.write_text(good.rsplit("\n", 1)[0])
    with pytest.raises(FedreproError, match="images and metadata do not fit: ISIC_0000279"):
        arrays_of(token, tmp_path)
    table.write_text(good.replace('"nv"', '"new"'))
    with pytest.raises(FedreproError, match="other classes than those of HAM10000"):
        arrays_of(token, tmp_path)
    # of another form, and with a field of more letters than there may be
    for bad in ("nothing", good.replace("HAM_0_000", "0" * 200_000)):
        table.write_text(bad)
        with pytest.raises(FedreproError, match="not the table of HAM10000"):
            arrays_of(token, tmp_path)


# ---------------------------------------------------------------------------------- shakespeare


GUTENBERG = """\
This is the preface. It is no play.

1603

ALLS WELL

by William Shakespeare

ACT I. SCENE 1.
Rousillon. A palace

  COUNTESS. In delivering my son from me,
    I bury a second husband.
  BERTRAM. And I in going, madam, weep o'er [Aside]
    my father's death anew;
  COUNTESS. Be thou blest.
  Exit
  LAFEU. Once.

1593

THE COMEDY OF ERRORS

ACT I. SCENE 1

COUNTESS. Another one
  of that name.
COUNTESS. Again.
"""


def text_of(arrays: Arrays, split: str, role: str) -> str:
    rows = arrays.group(split) == arrays.group_names.index(role)
    return "".join(arrays.classes[code] for code in arrays.y[split][rows])


def test_roles_are_found_in_the_file_that_leaf_starts_from(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "1994-01-100.zip", "w") as archive:
        archive.writestr("100.txt", GUTENBERG)
    arrays = arrays_of("shakespeare+source~leaf", tmp_path)
    assert arrays.group_names == ("ALLS WELL/COUNTESS", "THE COMEDY OF ERRORS/COUNTESS")
    assert arrays.stand_in == ""
    assert text_of(arrays, "train", "ALLS WELL/COUNTESS") == (
        "In delivering my son from me,\nI bury a second husband."
    )
    assert text_of(arrays, "train", "THE COMEDY OF ERRORS/COUNTESS") == "Another one\nof that name."
    # B is no character of a training text
    assert text_of(arrays, "test", "ALLS WELL/COUNTESS") == "e thou blest."


def test_whole_windows_lie_in_a_text(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "1994-01-100.zip", "w") as archive:
        archive.writestr("100.txt", GUTENBERG)
    arrays = arrays_of("shakespeare+source~leaf+stride~5+whole~true+window~5", tmp_path)
    text = "In delivering my son from me,\nI bury a second husband."
    text = "".join(letter for letter in text if letter in arrays.classes)
    rows = arrays.group("train") == 0
    windows = ["".join(arrays.classes[code] for code in row) for row in arrays.x["train"][rows]]
    assert windows == [text[at : at + 5] for at in range(0, len(text) - 5, 5)]
    assert text_of(arrays, "train", "ALLS WELL/COUNTESS") == text[5::5]


def test_a_text_without_roles_is_said(tmp_path: Path) -> None:
    path = tmp_path / "1994-01-100.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("100.txt", "nobody speaks")
    with pytest.raises(FedreproError, match="no role says anything"):
        arrays_of("shakespeare+source~leaf", tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("100.txt", GUTENBERG)
    with pytest.raises(FedreproError, match="no role has min_lines~9 lines"):
        arrays_of("shakespeare+min_lines~9+source~leaf", tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "")
    with pytest.raises(FedreproError, match="it holds no text"):
        arrays_of("shakespeare+source~leaf", tmp_path)


def write_plays(raw: Path, text: bytes) -> None:
    write_tar(raw / "plays.tar.xz", {"plays/a.txt": text})


def test_a_play_that_is_not_in_utf8_is_named(tmp_path: Path) -> None:
    write_plays(tmp_path, b"ACT I\nFOOL\tcaf\xe9\nFOOL\tagain\n")
    with pytest.raises(FedreproError, match=r"plays\.tar\.xz cannot .*a\.txt is not a text in UTF"):
        arrays_of("shakespeare", tmp_path)
    with lzma.open(tmp_path / "tiny_shakespeare.txt.xz", "wb") as file:
        file.write(b"Fool:\ncaf\xe9\n")
    with pytest.raises(FedreproError, match=r"tiny_shakespeare\.txt\.xz cannot be read .*utf-8"):
        arrays_of("shakespeare+source~tiny", tmp_path)


def test_a_text_with_more_letters_than_fit_a_byte_is_named(tmp_path: Path) -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4F00)))
    write_plays(tmp_path, f"ACT I\nFOOL\t{letters}\nFOOL\tagain\n".encode())
    with pytest.raises(FedreproError, match=r"it has 257 kinds of letters, at most 256 may be"):
        arrays_of("shakespeare", tmp_path)


# --------------------------------------------------------------------------------------- cifar10


def test_other_files_in_the_archive_of_cifar10_are_refused(tmp_path: Path) -> None:
    batch = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]})
    write_tar(tmp_path / "cifar-10-python.tar", {"cifar-10-batches-py/data_batch_1": batch})
    with pytest.raises(FedreproError, match="its files are not those of CIFAR-10"):
        arrays_of("cifar10", tmp_path)
