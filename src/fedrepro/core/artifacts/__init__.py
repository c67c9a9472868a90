"""Reading and writing files: whole or not at all, versioned, checked, equal bytes for equal inputs.

Every artifact carries a checksum of its content that is compared when it is read: tables and
states in themselves, JSON in a key of its own; arrays, and csv files that stay plain, are named
with theirs in the JSON beside them.
"""

from __future__ import annotations

import os

from fedrepro.core.artifacts.checksums import checksum_of, checksum_of_file, forget
from fedrepro.core.artifacts.files import (
    BEFORE_CHECKSUMS,
    SCHEMA_VERSION,
    atomic,
    damaged,
    has_checksum,
    json_text,
    map_array,
    one_line,
    place_of,
    read_checked,
    read_json,
    read_json_of,
    require_file,
    require_place,
    require_target,
    require_unread,
    saying_disk_errors,
    target_of,
    write_array,
    write_bytes,
    write_json,
    write_text,
)
from fedrepro.core.artifacts.models import (
    ROW_GROUP_CLIENTS,
    ModelWriter,
    Tensors,
    TrialModels,
    model_writer,
    read_models,
    write_models,
)
from fedrepro.core.artifacts.states import load_state, save_state
from fedrepro.core.artifacts.tables import (
    read_batches,
    read_provenance,
    read_source,
    read_table,
    require_source,
    write_table,
)

__all__ = [
    "BEFORE_CHECKSUMS",
    "ROW_GROUP_CLIENTS",
    "SCHEMA_VERSION",
    "ModelWriter",
    "Tensors",
    "TrialModels",
    "atomic",
    "checksum_of",
    "checksum_of_file",
    "damaged",
    "forget",
    "has_checksum",
    "json_text",
    "load_state",
    "map_array",
    "model_writer",
    "one_line",
    "os",
    "place_of",
    "read_batches",
    "read_checked",
    "read_json",
    "read_json_of",
    "read_models",
    "read_provenance",
    "read_source",
    "read_table",
    "require_file",
    "require_place",
    "require_source",
    "require_target",
    "require_unread",
    "save_state",
    "saying_disk_errors",
    "target_of",
    "write_array",
    "write_bytes",
    "write_json",
    "write_models",
    "write_table",
    "write_text",
]
