"""Every data set on the mirror's real files, beside what a second, independent reader finds."""

from __future__ import annotations

import io
import lzma
import math
import pickle
import re
import tarfile
import wave

import numpy as np
import pytest
from mirror import MIRROR, needs_mirror, real_arrays, without_xz
from test_datasets import read_idx
from test_published_forms import text_of

from fedrepro.components.datasets.mnist_and_fashion_mnist import TEST, TRAIN
from fedrepro.data.prepared import SPLITS

pytestmark = [needs_mirror, pytest.mark.nightly]


def member(archive: str, name: str) -> bytes:
    with tarfile.open(without_xz(MIRROR / archive)) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def sizes(token: str) -> list[int]:
    return [real_arrays(token).y[split].size for split in SPLITS]


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_mnist_is_what_was_published(name: str) -> None:
    arrays, folder = real_arrays(name), MIRROR / name.replace("_", "-")
    assert sizes(name) == [60_000, 0, 10_000]
    for split, (images, labels) in (("train", TRAIN), ("test", TEST)):
        assert np.array_equal(arrays.x[split], read_idx(folder / images))
        assert np.array_equal(arrays.y[split], read_idx(folder / labels))
    assert arrays.classes[arrays.y["train"][0]] == {"mnist": "5"}.get(name, "ankle boot")


def test_cifar10_is_what_was_published() -> None:
    arrays = real_arrays("cifar10")
    archive = "cifar-10/cifar-10-batches-py.tar.xz"
    first = pickle.loads(member(archive, "cifar-10-batches-py/data_batch_1"), encoding="bytes")
    assert sizes("cifar10") == [50_000, 0, 10_000]
    assert arrays.shape == (3, 32, 32)
    assert arrays.classes[arrays.y["train"][0]] == "frog"
    assert np.array_equal(arrays.x["train"][:10_000].reshape(-1, 3072), first[b"data"])
    assert arrays.y["train"][:10_000].tolist() == first[b"labels"]
    for split, count in (("train", 5000), ("test", 1000)):
        assert np.bincount(arrays.y[split]).tolist() == [count] * 10


PLAIN_HAM, SMALL_HAM = "ham10000+balance~none+size~32", "ham10000+size~16"


def test_ham10000_is_what_was_published_with_lesions_in_one_split_and_equal_classes() -> None:
    arrays = real_arrays(PLAIN_HAM)
    counts = sum(np.bincount(arrays.y[split], minlength=7) for split in SPLITS)
    assert sum(sizes(PLAIN_HAM)) == 10_015
    published = {"nv": 6705, "mel": 1113, "bkl": 1099, "bcc": 514, "akiec": 327, "vasc": 142}
    assert dict(zip(arrays.classes, counts, strict=True)) == {**published, "df": 115}
    assert len(arrays.group_names) == 7470
    assert "200×150" in arrays.stand_in
    arrays, plain = real_arrays(SMALL_HAM), real_arrays(PLAIN_HAM)
    lesions = [set(arrays.group(split).tolist()) for split in SPLITS]
    assert not any(a & b for i, a in enumerate(lesions) for b in lesions[:i])
    for split, count in zip(SPLITS, (1600, 200, 200), strict=True):
        assert np.bincount(arrays.y[split]).tolist() == [count] * 7
        # the lesions are split before anything is drawn from them
        assert set(arrays.group(split)) <= set(plain.group(split))
        share = np.bincount(plain.y[split]) / sum(np.bincount(plain.y[s]) for s in SPLITS)
        assert np.abs(share - (0.8 if split == "train" else 0.1)).max() < 0.04
    df = arrays.x["test"][arrays.y["test"] == arrays.classes.index("df")]
    # copies of a photograph are changed ones
    assert len(np.unique(df.reshape(len(df), -1), axis=0)) == len(df) == 200
    assert 40 < df.mean() < 220


def slow_spectrogram(clip: bytes) -> np.ndarray:
    """The same by the definition: a sum over samples for each frame, a triangle for each band."""
    with wave.open(io.BytesIO(clip)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (16_000, 2, 1)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
    padded = np.concatenate([np.zeros(512), samples, np.zeros(16_000 + 1024 - samples.size)])
    window = np.array([0.5 - 0.5 * math.cos(2 * math.pi * n / 1024) for n in range(1024)])
    corners = [700 * (10 ** (2840.0230467083 / 2595 * i / 33) - 1) for i in range(34)]
    power = np.zeros((32, 32))
    for frame in range(32):
        spectrum = np.abs(np.fft.fft(padded[frame * 512 : frame * 512 + 1024] * window)) ** 2
        for band in range(32):
            left, top, right = corners[band : band + 3]
            for k in range(513):
                hertz = k * 16_000 / 1024
                weight = min((hertz - left) / (top - left), (right - hertz) / (right - top))
                power[band, frame] += max(weight, 0) * spectrum[k]
    decibels = 10 * np.log10(np.maximum(power, 1e-10))
    return np.maximum(1 + (decibels - decibels.max()) / 80, 0)


def test_a_spectrogram_is_what_its_definition_says() -> None:
    arrays = real_arrays("speech_commands")
    archive = MIRROR / "speech-commands" / "speech_commands_v0.02_test_115.tar.xz"
    with tarfile.open(archive) as tar:
        clip = next(m for m in tar if m.name.endswith("0cb74144_nohash_0.wav") and "down" in m.name)
        expected = slow_spectrogram(tar.extractfile(clip).read())  # type: ignore[union-attr]
    down, speaker = arrays.classes.index("down"), arrays.group_names.index("0cb74144")
    split = next(s for s in SPLITS if speaker in arrays.group(s))
    first = np.flatnonzero((arrays.group(split) == speaker) & (arrays.y[split] == down))[0]
    assert np.abs(arrays.x[split][first] - expected).max() < 1e-4
    assert arrays.x[split][first].mean() == pytest.approx(expected.mean(), abs=1e-5)


def test_roles_say_what_the_plays_say() -> None:
    arrays = real_arrays("shakespeare")
    text = member("shakespeare/plays.tar.xz", "plays/hamlet.txt").decode()
    spoken = re.findall(r"^OSRIC\t(.*)$", text.split("ACT I\n", 1)[1], re.M)
    first, last = text_of(arrays, "train", "hamlet/OSRIC"), text_of(arrays, "test", "hamlet/OSRIC")
    assert first.startswith(spoken[0])
    assert spoken[len(spoken) - math.ceil(len(spoken) / 5)] in last
    assert spoken[-1] in last
    assert spoken[-1] not in first
    assert "Enter" not in first + last
    assert text_of(arrays, "train", "hamlet/HAMLET").startswith(
        "A little more than kin, and less than kind."
    )
    assert len(arrays.group_names) == 1120
    assert "1,120 roles" in arrays.stand_in

    arrays = real_arrays("shakespeare+source~tiny+validation~0.2")
    text = lzma.decompress((MIRROR / "shakespeare/tiny_shakespeare.txt.xz").read_bytes()).decode()
    assert set(arrays.group_names) <= set(re.findall(r"(?:\A|\n\n)([^\n:]+):\n", text))
    assert text_of(arrays, "train", "First Citizen").startswith(
        "Before we proceed any further, hear me speak.\nYou are all resolved"
    )
    assert arrays.y["validation"].size > 0
    assert "stand in" in arrays.stand_in
