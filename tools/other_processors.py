"""Run tests on other processors, which QEMU emulates, since results may depend on the processor.

    .venv/bin/python tools/other_processors.py                      # tests that failed somewhere
    .venv/bin/python tools/other_processors.py tests/unit -m bytes  # all that compare bytes

Arguments are those of pytest. Needs `qemu-x86_64` (Debian's qemu-user) on a machine with an x86-64
processor; programs that a test starts run on the real processor. Each emulated processor has its
own folder for code that Numba compiles, and for /proc/cpuinfo, which QEMU does not emulate. Exit
status 1 if a test fails on any processor, 2 if QEMU cannot be used.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

QEMU = "qemu-x86_64"
TESTS = Path("tests/unit")
SAID = "output"
# QEMU's name of each processor, and the flags that our code and libraries read from the kernel;
# QEMU does not emulate AVX-512
PROCESSORS = {"Haswell-noTSX": "avx avx2 fma", "EPYC": "avx avx2 fma"}
# They take half a minute. Tests of training run only if named, since compiling takes minutes.
CHOSEN = tuple(
    f"test_golden_bytes.py::test_bytes_of_inputs[{name}]"
    for name in ("images", "functions", "operators")
)
# oneDNN's LSTM and NumPy's sorting for AVX2 end in a segmentation fault under QEMU 7.2, though not
# on a real processor; a -k among the arguments replaces this one
UNPLAYED = ("-k", "not lstm and not sorting")
# beginnings of environment variables that make libraries ignore what the processor can do
STEERING = ("MKL_", "ONEDNN_", "DNNL_", "ATEN_", "OPENBLAS_CORETYPE", "NUMBA_", "NPY_")


def main(words: list[str]) -> int:
    """Run pytest with arguments `words` on all emulated processors; return the exit status."""
    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which(QEMU):
        print(
            f"other processors cannot be played: that takes {QEMU}, of Debian's qemu-user, on a "
            "machine with an x86-64 processor",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="fedrepro-processors-") as place:
        folders = {name: Path(place) / name for name in PROCESSORS}
        runs = {name: started(name, folder, words) for name, folder in folders.items()}
        failed = 0
        try:
            for name, run in runs.items():
                failed |= run.wait() != 0
                print(f"== {name}", *said(folders[name]), sep="\n", flush=True)
        finally:
            for run in runs.values():
                run.kill()
                run.wait()
    return int(failed)


def started(name: str, folder: Path, words: list[str]) -> subprocess.Popen[bytes]:
    """Start pytest with arguments `words` on the emulated processor `name`, in its own folder."""
    cpuinfo = folder / "root/proc/cpuinfo"
    cpuinfo.parent.mkdir(parents=True)
    cpuinfo.write_text(
        f"model name\t: {name}, played by QEMU\nflags\t\t: {PROCESSORS[name]}\n", encoding="utf-8"
    )
    own = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    tests = words or [str(TESTS / test) for test in CHOSEN]
    command = [QEMU, "-L", str(folder / "root"), sys.executable, "-P", "-m", "pytest"]
    # without plugins: workers of pytest-xdist would run on the real processor
    chosen = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NUMBA_CACHE_DIR": str(folder / "numba")}
    with (folder / SAID).open("wb") as out:
        return subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *UNPLAYED, *tests],
            env=own | chosen | {"QEMU_CPU": name},
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def said(folder: Path) -> list[str]:
    """Return the lines that pytest printed in `folder`, without QEMU's warnings."""
    lines = (folder / SAID).read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if not line.startswith(f"{QEMU}: warning:")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
