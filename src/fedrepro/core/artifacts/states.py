"""States and checkpoints as `.pt`: zip archives whose comment is their place and their checksum."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from fedrepro.core.artifacts.checksums import LENGTH, checksum_of
from fedrepro.core.artifacts.files import damaged, one_line, place_of, require_place, write_bytes

# the record that ends a zip archive: how it begins, and its length without the comment
END = b"PK\x05\x06"
END_LENGTH = 22


def save_state(path: Path | str, state: Any) -> None:
    """Plain data and tensors as `.pt`; equal states give equal bytes."""
    import torch

    # torch.save writes the file's own name into the archive, so it goes through a buffer
    buffer = io.BytesIO()
    torch.save(_canonical(state, {}), buffer)
    _comment(buffer, place_of(path))
    write_bytes(path, buffer.getbuffer())


def _comment(archive: io.BytesIO, place: str) -> None:
    """Give a zip archive that has no comment one, in its place; any program can still read it."""
    head = f"{place} ".encode()
    # an archive ends with the length of its comment, in two bytes
    archive.seek(-2, io.SEEK_END)
    archive.write((len(head) + LENGTH).to_bytes(2, "little") + head)
    with archive.getbuffer() as whole:
        checksum = checksum_of(whole)
    archive.write(checksum.encode())


def _canonical(value: Any, texts: dict[str, str]) -> Any:
    """The same data in new objects, except that equal texts are one object.

    Pickle writes an object that it has met before as a reference, so that without this the bytes
    would tell apart a state just computed from the same state read back.
    """
    if isinstance(value, str):
        return texts.setdefault(value, value)
    if isinstance(value, dict):
        return {_canonical(k, texts): _canonical(v, texts) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_canonical(item, texts) for item in value)
    return value.detach().clone() if hasattr(value, "detach") else value


def load_state(path: Path | str) -> Any:
    """What `save_state` wrote; tensors on the CPU.

    Errors: FedreproError for a file that is missing, damaged, or was written at another place.
    """
    import torch

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise damaged(path, one_line(error)) from error
    if data[-LENGTH:] != checksum_of(memoryview(data)[:-LENGTH]).encode():
        raise damaged(path, "its checksum is not that of its bytes")
    require_place(path, data[data.rfind(END) + END_LENGTH : -LENGTH].decode().strip())
    try:
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception as error:  # unpickling can raise anything
        raise damaged(path, one_line(error)) from error
