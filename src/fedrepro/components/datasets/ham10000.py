"""HAM10000, dermatoscopic photographs of pigmented skin lesions in seven classes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedrepro.core.checksummed_files import corrupt_file_error
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.archive import unpack_archive
from fedrepro.data.feature_extraction import Features, represent
from fedrepro.data.prepared import Arrays
from fedrepro.data.stratified_samples_and_splits import apportion, split_groups

CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
FILES = {
    "reduced": ("ham10000-200x150.tar",),
    "publisher": (
        "HAM10000_images_part_1.zip",
        "HAM10000_images_part_2.zip",
        "HAM10000_metadata.csv",
    ),
}
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
REDUCED = "HAM10000 from photographs reduced to {}×{} pixels (published: 600×450)."


@register(
    "dataset",
    "ham10000",
    version=1,
    files=FILES,
    title="HAM10000",
    licence="CC BY-NC 4.0",
    citation="Tschandl, Rosendahl, Kittler: The HAM10000 dataset, a large collection of "
    "multi-source dermatoscopic images of common pigmented skin lesions. Scientific Data 5, 2018",
)
def ham10000(
    raw: Path,
    *,
    source: Annotated[
        Literal["reduced", "publisher"],
        Arg("which files: a mirror's photographs of 200×150 pixels, or the originals"),
    ] = "reduced",
    size: Annotated[
        int, Arg("side of the square to which photographs are resized", unit="pixels", least=8)
    ] = 64,
    balance: Annotated[
        Literal["all", "train", "none"],
        Arg("splits in which all classes get equally many examples"),
    ] = "all",
    per_class: Annotated[
        int, Arg("examples of each class, over all splits", unit="examples", least=10)
    ] = 2000,
    rotation: Annotated[
        float, Arg("largest angle of a random rotation", unit="degrees", least=0, most=180)
    ] = 180.0,
    shift: Annotated[
        float, Arg("largest random shift, as a share of the side", least=0, most=0.5)
    ] = 0.1,
    features: Features = "pixels",
) -> Arrays:
    """Read HAM10000: 10,015 photographs of 7,470 skin lesions, seven classes made equal in size.

    GEMS, appendix B.1, makes 2000 images of each class by rotations, shifts and flips, and then
    splits them 80/10/10. Here lesions are split first, by class, so that no lesion is in two
    splits; the paper does not say so. Each split then gets its 1600, 200 or 200 images of each
    class. Of a class with too many photographs, random ones are kept; a class with too few gets
    changed copies. With balance~train, validation and test keep their class sizes: two thirds are
    moles. Image size (64), angles (any) and shifts (a tenth of the side) are our choice. Corners
    that a rotation opens are filled by reflection. All draws have fixed seeds. An example's natural
    group is its lesion. Inputs have shape (3, size, size), unless `features` names what replaces
    pixels. `raw` is the folder of the downloaded files.
    """
    pictures, labels, lesions, names, stored = _read(raw, FILES[source], size)
    rng = RngKey(0)
    folds = split_groups(labels, lesions, rng.stream("ham10000-split"), SHARES["test"])
    x, y, groups = {}, {}, {}
    for split, rows in folds.items():
        wanted = round(per_class * SHARES[split])
        equal = balance == "all" or (balance == "train" and split == "train")
        count = wanted if equal else 0
        chosen, copies = _choose(labels, rows, count, rng.stream(f"ham10000-{split}"))
        taken = np.concatenate([chosen, copies])
        changed = _changed(pictures[copies], rotation, shift, split)
        x[split] = np.concatenate([pictures[chosen], changed])
        y[split], groups[split] = labels[taken], lesions[taken].astype(np.int32)
    images = Arrays(
        x=x,
        y=y,
        scale=255.0,
        shape=(3, size, size),
        classes=CLASSES,
        stand_in="" if stored == (600, 450) else REDUCED.format(*stored),
        notes=(f"{labels.size:,} photographs of {len(names):,} lesions",),
        groups=groups,
        group_names=names,
    )
    return represent(images, features)


def _choose(
    labels: np.ndarray, rows: np.ndarray, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of `rows` to keep and to copy changed, for `count` examples per class."""
    if not count:
        return rows, rows[:0]
    chosen, copies = [], []
    for label in np.unique(labels[rows]):
        class_rows = generator.permutation(rows[labels[rows] == label])
        chosen.append(np.sort(class_rows[:count]))
        even = np.ones(class_rows.size, np.int64)
        times = apportion(count - chosen[-1].size, even, generator)
        copies.append(np.repeat(class_rows, times))
    return np.concatenate(chosen), np.concatenate(copies)


def _changed(x: np.ndarray, rotation: float, shift: float, split: str) -> np.ndarray:
    """Rotate, shift and flip each image at random: uint8 (N, 3, side, side), a new array."""
    import torch
    from torchvision.transforms import InterpolationMode, v2

    side = x.shape[-1]
    margin = side // 2
    change = v2.Compose(
        [
            v2.Pad(margin, padding_mode="reflect"),
            # shifts are shares of the padded side
            v2.RandomAffine(
                degrees=rotation,
                translate=(shift * side / (side + 2 * margin),) * 2,
                interpolation=InterpolationMode.BILINEAR,
            ),
            v2.CenterCrop(side),
            v2.RandomHorizontalFlip(),
            v2.RandomVerticalFlip(),
        ]
    )
    changed = np.empty_like(x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(RngKey(0).stream(f"ham10000-changes-{split}").integers(2**62)))
        for number, image in enumerate(x):
            changed[number] = change(torch.from_numpy(image)).numpy()
    return changed


# --------------------------------------------------------------------------------- reading


def _read(
    raw: Path, files: tuple[str, ...], size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], tuple[int, int]]:
    """Read photographs, uint8 (N, 3, size, size), class numbers and lesion numbers, int64 (N,)."""
    pictures: dict[str, np.ndarray] = {}
    table: dict[str, tuple[str, str]] = {}
    stored = 0, 0
    for name in files:
        if name.endswith(".csv"):
            table = _metadata(raw / name)
            continue
        with unpack_archive(
            "ham10000", raw / name, lambda member: member.endswith((".jpg", ".csv"))
        ) as folder:
            for path in folder.rglob("*.csv"):
                table = _metadata(path)
            for key, picture, of_picture in _pictures(folder, size, raw / name):
                pictures[key], stored = picture, of_picture
    if not pictures or set(pictures) != set(table):
        odd = " ".join(sorted(set(pictures) ^ set(table))[:1]) or "none"
        raise corrupt_file_error(raw / files[0], f"images and metadata do not fit: {odd}")
    names = sorted(pictures)
    lesion_names, lesions = np.unique([table[name][0] for name in names], return_inverse=True)
    labels = np.array([CLASSES.index(table[name][1]) for name in names], np.int64)
    x = np.stack([pictures[name] for name in names])
    return x, labels, lesions.astype(np.int64), tuple(map(str, lesion_names)), stored


def _metadata(path: Path) -> dict[str, tuple[str, str]]:
    """Read the table of metadata, separated by commas or tabs: {image: (lesion, class)}."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = file.read().splitlines()
        reader = csv.DictReader(lines, delimiter="\t" if "\t" in lines[0] else ",")
        table = {row["image_id"]: (row["lesion_id"], row["dx"]) for row in reader}
        if not table:
            raise ValueError("it has no rows")
    except (OSError, ValueError, KeyError, IndexError, csv.Error) as error:
        why = "it is not the table of HAM10000 that it should be"
        raise corrupt_file_error(path, why) from error
    if not {label for _, label in table.values()} <= set(CLASSES):
        raise corrupt_file_error(path, "it names other classes than those of HAM10000")
    return table


def _pictures(
    folder: Path, size: int, archive: Path
) -> Iterator[tuple[str, np.ndarray, tuple[int, int]]]:
    """Yield each JPEG's name, pixels resized to uint8 (3, size, size), and its (width, height)."""
    from torchvision.datasets.folder import pil_loader
    from torchvision.transforms.v2.functional import pil_to_tensor, resize

    for path in sorted(folder.rglob("*.jpg")):
        try:
            image = pil_to_tensor(pil_loader(str(path)))
        except Exception as error:  # the reader of a damaged file can raise anything
            raise corrupt_file_error(archive, f"{path.name} is not a JPEG") from error
        small = resize(image, [size, size], antialias=True).numpy()
        yield path.stem, small, (image.shape[2], image.shape[1])
