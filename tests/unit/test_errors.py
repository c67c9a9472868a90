"""Sentences for what a person can mend, and for what a machine lacks."""

from __future__ import annotations

import errno

import pytest

from fedrepro.core.errors import (
    LISTED,
    SHOWN,
    FedreproError,
    disk_error,
    fault,
    printable,
    sentence_for,
    shown,
    unknown,
)


def test_what_cannot_be_printed_is_written_out_and_a_long_value_is_cut():
    assert printable("plain — text") == "plain — text"
    assert printable("a\nb\x00c\x1b") == "a\\nb\\x00c\\x1b"
    assert str(FedreproError("one\ntwo")) == "one\\ntwo"
    assert f"'{'y' * SHOWN}'" in str(unknown("method", "y" * SHOWN, ["a"]))
    assert f"'{'y' * SHOWN}…'" in str(unknown("method", "y" * (SHOWN + 1), ["a"]))
    longest = "x" * (SHOWN - 2)  # two marks around it
    assert shown(longest) == f"'{longest}'"
    assert shown(longest + "x") == f"'{longest}x…"
    assert shown([1]) == "[1]"


def test_an_unknown_name_gets_the_nearest_one_and_others_up_to_a_number():
    said = str(unknown("method", "averag", ["pfnm", "average"], "a file"))
    assert said == (
        "unknown method 'averag' in a file: did you mean 'average'? known are average, pfnm"
    )
    assert str(unknown("method", "zz", ["pfnm"])) == "unknown method 'zz': known are pfnm"
    assert str(unknown("method", "zz", [])) == "unknown method 'zz': known are none"
    names = [f"name{i:02}" for i in range(LISTED + 3)]
    assert "more" not in str(unknown("method", "name", names[:LISTED]))
    assert str(unknown("method", "name", names)).endswith(" and 3 more")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("path", ["here/file", None])
def test_a_disk_that_takes_nothing_is_said_with_the_file_where_it_is_known(number, path):
    error = OSError(number, "said by the system", path) if path else OSError(number, "said")
    assert str(sentence_for(error)) == str(disk_error(error, path or "a file"))
    assert f"cannot write {path or 'a file'}" in str(sentence_for(error))


def test_other_errors_are_of_a_file_of_memory_or_left_to_the_handler_of_faults():
    said = sentence_for(OSError(errno.EACCES, "Permission denied", "here/file"))
    assert str(said) == "here/file cannot be used (permission denied); fix that and start again"
    for error in (OSError("without a number"), OSError(errno.EINTR, "interrupted")):
        assert disk_error(error, "x") is None
    assert sentence_for(OSError(errno.ECONNRESET, "Connection reset")) is None
    assert sentence_for(ValueError("anything")) is None
    words = ("CUDA out of memory", "can't allocate memory", "std::bad_alloc")
    missed = OSError(errno.ENOMEM, "Cannot allocate memory")
    for error in (MemoryError(), missed, *map(RuntimeError, words)):
        told = f"there is not enough memory ({str(error) or 'none is left'}): choose"
        assert str(sentence_for(error)).startswith(told)


def test_a_fault_says_where_it_arose_in_the_innermost_frame():
    def inner():
        raise KeyError("a  name")

    with pytest.raises(KeyError) as raised:
        inner()
    line = inner.__code__.co_firstlineno + 1
    assert f"(KeyError: 'a name', test_errors.py line {line})" in str(fault(raised.value))
    assert "(KeyError)" in str(fault(KeyError()))
