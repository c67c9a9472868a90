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
from PIL import Image
from test_datasets import arrays_of

from fedrepro.components.datasets.ham10000 import FILES, REDUCED
from fedrepro.components.datasets.shakespeare_and_generated_speeches import read_plays
from fedrepro.components.datasets.speech_commands import FILE, KEYWORDS
from fedrepro.core.errors import FedreproError
from fedrepro.data.prepared import SPLITS, Arrays


def tar_of(members, mode="w"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def zip_of(members, packing=zipfile.ZIP_STORED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packing) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return packed.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    path.write_bytes(tar_of(members, "w:gz"))


def clip(hertz: float, seconds: float = 1.0, rate: int = 16_000) -> bytes:
    tone = np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((tone * 20_000).astype("<i2").tobytes())
    return buffer.getvalue()


def speech() -> dict[str, bytes]:
    """Two clips of four speakers for each keyword, and a word that is no keyword."""
    members = {
        f"./{word}/{speaker}_nohash_{number}.wav": clip(300 + 200 * number, 1 - 0.2 * number)
        for word in KEYWORDS
        for speaker in ("aa", "bb", "cc", "dd")
        for number in range(2)
    }
    return members | {"./bed/aa_nohash_0.wav": clip(500)}


def test_the_publishers_speech_is_split_by_its_lists(tmp_path: Path) -> None:
    validation = "\n".join(f"{w}/bb_nohash_{n}.wav" for w in KEYWORDS for n in (0, 1))
    testing = "\n".join(f"{w}/cc_nohash_0.wav" for w in KEYWORDS) + "\nbed/x.wav"
    lists = {"./validation_list.txt": validation.encode(), "./testing_list.txt": testing.encode()}
    write_tar(tmp_path / FILE, speech() | lists)
    arrays = arrays_of("speech_commands", tmp_path)
    assert [np.bincount(arrays.y[s]).tolist() for s in SPLITS] == [[5] * 10, [2] * 10, [1] * 10]
    assert arrays.group_names == ("aa", "bb", "cc", "dd")
    assert [set(arrays.group(split)) for split in SPLITS[1:]] == [{1}, {2}]
    assert arrays.stand_in == ""


def test_a_tone_is_loud_in_its_band_and_a_clip_of_another_form_is_named(tmp_path: Path) -> None:
    write_tar(tmp_path / FILE, speech())
    arrays = arrays_of("speech_commands", tmp_path)
    x = np.concatenate([arrays.x[split] for split in SPLITS])
    assert (x.dtype, x.min(), x.max()) == (np.float32, 0, 1)
    loudest = {int(image[:, 5].argmax()) for image in x}
    assert len(loudest) == 2
    assert max(loudest) < 8
    assert sum(image[:, -4:].max() == 0 for image in x) == 40
    assert arrays.stand_in.startswith("80 clips of 4 speakers")
    other = arrays_of("speech_commands+hop~160+mels~40+window~400", tmp_path)
    assert other.shape == (40, 100)
    for bad, words in ((clip(300, rate=8000), "not 16-bit mono"), (b"RIFF", "not a wav file")):
        write_tar(tmp_path / FILE, {**speech(), "./yes/aa_nohash_0.wav": bad})
        with pytest.raises(FedreproError, match=f"{FILE} cannot be .*aa_nohash_0.wav is {words}"):
            arrays_of("speech_commands", tmp_path)
    write_tar(tmp_path / FILE, {"./yes/aa_nohash_0.wav": clip(300)})
    with pytest.raises(FedreproError, match="all ten keywords"):
        arrays_of("speech_commands", tmp_path)


def write_ham(raw: Path, separator: str = "\t", size: tuple[int, int] = (60, 45)) -> None:
    """Twenty lesions a class, two photographs each, in two zips and a table as at Dataverse."""
    lines, pictures = [["lesion_id", "image_id", "dx", "age"]], {}
    for label, name in enumerate(("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")):
        for number in range(40):
            image = f"ISIC_{len(pictures):07}"
            lines.append([f"HAM_{label}_{number // 2:03}", image, name, "50.0"])
            buffer = io.BytesIO()
            Image.new("RGB", size, (label * 30 + number, 100, 50)).save(buffer, "JPEG")
            pictures[image] = buffer.getvalue()
    for at, file in enumerate(FILES["publisher"][:2]):
        half = list(pictures)[140 * at : 140 * (at + 1)]
        (raw / file).write_bytes(zip_of({f"{image}.jpg": pictures[image] for image in half}))
    text = "\n".join(separator.join(f'"{cell}"' for cell in row) for row in lines)
    (raw / FILES["publisher"][2]).write_text(text)


def test_ham10000_is_read_as_its_publisher_ships_it(tmp_path: Path) -> None:
    small, large = (60, 45), (600, 450)
    for separator, size, told in (("\t", large, ""), (",", small, REDUCED.format(*small))):
        write_ham(tmp_path, separator, size)
        arrays = arrays_of("ham10000+balance~none+size~16+source~publisher", tmp_path)
        assert arrays.stand_in == told
        assert [arrays.y[split].size for split in SPLITS] == [224, 28, 28]
        for split in SPLITS:
            number = arrays.x[split][:, 0].mean((1, 2)) - 30 * arrays.y[split]
            assert -3 < number.min() <= number.max() < 43
            lesions = [arrays.group_names[g][:5] for g in arrays.group(split)]
            assert lesions == [f"HAM_{y}" for y in arrays.y[split]]


def test_ham10000_is_balanced_where_it_is_asked_for(tmp_path: Path) -> None:
    write_ham(tmp_path)

    def counts(token: str) -> tuple[Arrays, list[list[int]]]:
        arrays = arrays_of(f"ham10000+{token}+size~16+source~publisher", tmp_path)
        return arrays, [np.bincount(arrays.y[split]).tolist() for split in SPLITS]

    both, found = counts("per_class~100")
    assert found == [[80] * 7, [10] * 7, [10] * 7]
    assert counts("balance~train+per_class~100")[1] == [[80] * 7, [4] * 7, [4] * 7]
    # a class with more photographs than asked for gives some of them, unchanged
    assert counts("per_class~20")[1][0] == [16] * 7
    again, _ = counts("per_class~100")
    assert all(np.array_equal(both.x[s], again.x[s]) for s in SPLITS)


def test_ham10000_needs_a_photograph_for_every_row(tmp_path: Path) -> None:
    write_ham(tmp_path)
    table = tmp_path / FILES["publisher"][2]
    good = table.read_text()
    for bad, told in (
        (good.rsplit("\n", 1)[0], "images and metadata do not fit: ISIC_0000279"),
        (good.replace('"nv"', '"new"'), "other classes than those of HAM10000"),
        # of another form, and with a field of more letters than there may be
        ("nothing", "not the table of HAM10000"),
        (good.replace("HAM_0_000", "0" * 200_000), "not the table of HAM10000"),
    ):
        table.write_text(bad)
        with pytest.raises(FedreproError, match=told):
            arrays_of("ham10000+source~publisher", tmp_path)


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
  Countess. Be thou blest.
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


def write_leaf(raw: Path, text: str = GUTENBERG, name: str = "100.txt") -> None:
    (raw / "1994-01-100.zip").write_bytes(zip_of({name: text}))


def test_roles_are_found_in_the_file_that_leaf_starts_from(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    arrays = arrays_of("shakespeare+source~leaf", tmp_path)
    assert arrays.group_names == ("ALLS WELL/COUNTESS", "THE COMEDY OF ERRORS/COUNTESS")
    assert arrays.stand_in == ""
    told = text_of(arrays, "train", "ALLS WELL/COUNTESS")
    assert told == "In delivering my son from me,\nI bury a second husband."
    assert text_of(arrays, "train", "THE COMEDY OF ERRORS/COUNTESS") == "Another one\nof that name."
    # B is no character of a training text
    assert text_of(arrays, "test", "ALLS WELL/COUNTESS") == "e thou blest."


def test_whole_windows_lie_in_a_text_and_one_without_roles_is_said(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    arrays = arrays_of("shakespeare+source~leaf+stride~5+whole~true+window~5", tmp_path)
    text = "In delivering my son from me,\nI bury a second husband."
    text = "".join(letter for letter in text if letter in arrays.classes)
    rows = arrays.group("train") == 0
    windows = ["".join(arrays.classes[code] for code in row) for row in arrays.x["train"][rows]]
    assert windows == [text[at : at + 5] for at in range(0, len(text) - 5, 5)]
    assert text_of(arrays, "train", "ALLS WELL/COUNTESS") == text[5::5]
    for given, more, told in (
        (("nobody speaks",), "", "no role says anything"),
        ((), "min_lines~9+", "no role has min_lines~9 lines"),
        (("", "readme"), "", "it holds no text"),
    ):
        write_leaf(tmp_path, *given)
        with pytest.raises(FedreproError, match=told):
            arrays_of(f"shakespeare+{more}source~leaf", tmp_path)


def test_a_text_of_other_letters_and_other_files_of_cifar10_are_refused(tmp_path: Path) -> None:
    many = f"ACT I\nFOOL\t{''.join(map(chr, range(0x4E00, 0x4F00)))}\nFOOL\tagain\n".encode()
    for text, told in (
        (b"ACT I\nFOOL\tcaf\xe9\nFOOL\tagain\n", r"xz cannot .*a\.txt is not a text in UTF"),
        (many, "it has 257 kinds of letters, at most 256 may be"),
    ):
        write_tar(tmp_path / "plays.tar.xz", {"plays/a.txt": text})
        with pytest.raises(FedreproError, match=told):
            arrays_of("shakespeare", tmp_path)
    play = b"A PLAY\nACT I\nFOOL\tone\n\tALAS\n\tA PLAY\n\tno\nFOOL\ttwo\n\tEPILOGUE\n\tno\n"
    write_tar(tmp_path / "plays.tar.xz", {"plays/a.txt": play})
    assert read_plays(tmp_path / "plays.tar.xz") == {"a/FOOL": ["one\nALAS", "two"]}
    (tmp_path / "tiny_shakespeare.txt.xz").write_bytes(lzma.compress(b"Fool:\ncaf\xe9\n"))
    with pytest.raises(FedreproError, match=r"tiny_shakespeare\.txt\.xz cannot be read .*utf-8"):
        arrays_of("shakespeare+source~tiny", tmp_path)
    batch = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]})
    write_tar(tmp_path / "cifar-10-python.tar", {"cifar-10-batches-py/data_batch_1": batch})
    with pytest.raises(FedreproError, match="its files are not those of CIFAR-10"):
        arrays_of("cifar10", tmp_path)
