"""Products, exponentials and draws without MKL; commands pin the branches of other libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from asked import asked_of_mkl, by_mkl
from test_steps import NAMED

from fedrepro.core import kernel_pinning
from fedrepro.core.portable_ops import torch_ops
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense

SIZES = [(3, 5, 4), (1, 1, 1), (10, 600, 512), (10, 512, 600)]
KINDS = [torch.float32, torch.float64]


def drawn(*shape: int, kind: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_a_product_is_that_of_torch(kind, size, turned):
    n, k, m = size
    a = drawn(k, n, kind=kind).T if turned[0] else drawn(n, k, kind=kind)
    b = drawn(m, k, kind=kind).T if turned[1] else drawn(k, m, kind=kind)
    found, wanted = torch_ops.multiplied(a, b).double(), (a @ b).double()
    # within the rounding of a sum of k terms
    assert torch.allclose(found, wanted, rtol=1e-5, atol=2e-6 * k)


@pytest.mark.parametrize("size", SIZES)
def test_a_model_has_the_same_bytes_alone_and_in_a_stack(size):
    n, k, m = size
    a, b = drawn(3, n, k, kind=torch.float32), drawn(3, m, k, kind=torch.float32).transpose(1, 2)
    whole = torch_ops.multiplied(a, b)
    for i in range(3):
        assert torch.equal(torch_ops.multiplied(a[i], b[i]), whole[i])
        assert torch.equal(torch_ops.multiplied(a[i : i + 1], b[i : i + 1])[0], whole[i])


def test_affine_maps_and_exponentials_are_those_of_their_equations():
    given = [drawn(2, 3, 4), drawn(2, 4, 5), drawn(2, 5)]
    assert torch.autograd.gradcheck(
        torch_ops.portable_affine, [value.requires_grad_() for value in given]
    )
    x, weight, bias = drawn(1, 3, 4), drawn(1, 4, 5).requires_grad_(), drawn(1, 5)
    torch_ops.portable_affine(x, weight, bias).sum().backward()
    assert x.grad is None
    assert weight.grad is not None
    x = torch.linspace(-30, 5, 2001)
    assert torch.allclose(torch_ops.exponential(x), x.exp(), rtol=4e-6)
    positive = x.exp()
    assert torch.allclose(torch_ops.logarithm(positive), positive.log(), rtol=1e-6, atol=1e-6)
    assert torch.equal(torch_ops.root(positive), positive.double().sqrt().float())
    assert torch.autograd.gradcheck(torch_ops.logarithm, drawn(6).abs().add(0.1).requires_grad_())


@pytest.mark.nightly
def test_of_jobs_that_need_the_same_code_one_compiles_it(tmp_path):
    code = (
        "import numpy as np\n"
        "from fedrepro.training.step_arrays_losses_variational import softplus\n"
        "softplus(np.ones(3), np.ones(3)); print(sum(softplus.stats.cache_misses.values()))"
    )
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    start = [sys.executable, "-c", code]
    jobs = [subprocess.Popen(start, env=given, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(job.communicate()[0].strip() for job in jobs) == ["0", "0", "1"]


@pytest.mark.parametrize("sizes", [(5, 3), (784, 50, 10), (3, 4, 4, 2)])
def test_networks_begin_with_what_numpy_would_draw(sizes):
    rng = RngKey(3, 1, client=2)
    generator = rng.stream("initial-weights")
    for name, value in dense(sizes).initial(rng, 0.3, 0.1).items():
        if name.startswith("bias"):
            assert (value == np.float32(0.1)).all()
        else:
            drawn = generator.normal(0.0, 0.3, value.shape).astype(np.float32)
            assert value.tobytes() == drawn.tobytes()


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_outputs_and_gradients_are_those_of_grouped_convolutions(padding, kernel):
    generator = torch.Generator().manual_seed(kernel)
    shapes = (3, 4, 2, 9, 7), (3, 5, 2, kernel, kernel)
    x, weight = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    )
    own = torch_ops.convolved(x, weight, padding)
    each = zip(x, weight, strict=True)
    theirs = torch.stack([torch.conv2d(a, b, padding=padding) for a, b in each])
    torch.testing.assert_close(own, theirs)
    error = torch.randn(own.shape, generator=generator, dtype=torch.float64)
    slopes = (torch.autograd.grad(made, (x, weight), error) for made in (own, theirs))
    torch.testing.assert_close(*slopes)


AVX2, AVX512 = "fpu avx avx2 fma", "fpu avx avx2 fma avx512f"
NAMES = kernel_pinning.BRANCHES
HERE = Path(__file__).parent
with_avx2 = pytest.mark.skipif(
    not kernel_pinning.flags() >= kernel_pinning.NEEDED, reason="not an x86-64 with AVX2"
)


@pytest.fixture
def unpinned(tmp_path, monkeypatch):
    """A process in which nothing is pinned or loaded yet, on a processor with these flags."""
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in NAMES})
    monkeypatch.setattr(kernel_pinning, "READERS", frozenset())
    monkeypatch.setattr(kernel_pinning, "_taken", kernel_pinning.NOT_PINNED)

    def on(flags: str) -> str:
        path = tmp_path / flags.replace(" ", "-")
        path.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbogomips\t: 1\n")
        return str(path)

    return on


@pytest.mark.parametrize("flags", [AVX2, AVX512])
def test_the_same_branches_are_pinned_on_every_processor(unpinned, flags):
    assert kernel_pinning.active_mode() == "not pinned"
    assert kernel_pinning.pin(unpinned(flags)) == kernel_pinning.active_mode() == "portable"
    assert {name: os.environ[name] for name in NAMES} == dict(NAMES)
    assert kernel_pinning.pin(unpinned(flags)) == "portable"  # as in a process that inherits them


def test_what_somebody_set_stays_and_nothing_is_pinned_without_the_branches(unpinned, tmp_path):
    for path in (unpinned("fpu avx"), unpinned("fpu avx avx2"), str(tmp_path / "none")):
        assert kernel_pinning.pin(path) == "not pinned"
        assert not NAMES.keys() & os.environ.keys()
    os.environ["OPENBLAS_CORETYPE"] = "Zen"
    assert kernel_pinning.pin(unpinned(AVX2)) == "portable but for OPENBLAS_CORETYPE=Zen"
    assert os.environ["OPENBLAS_CORETYPE"] == "Zen"
    os.environ |= NAMES | {"OPENBLAS_CORETYPE": "Zen"}  # by a parent on a newer machine
    assert kernel_pinning.pin(unpinned("fpu avx")) == "portable but for OPENBLAS_CORETYPE=Zen"
    assert NAMES.keys() & os.environ.keys() == {"OPENBLAS_CORETYPE"}


def test_a_library_that_was_loaded_before_is_not_pinned(unpinned, monkeypatch):
    monkeypatch.setattr(kernel_pinning, "READERS", frozenset({np.__name__}))
    assert kernel_pinning.pin(unpinned(AVX2)) == "not pinned"
    os.environ.update(NAMES)  # by the process that started this one
    assert kernel_pinning.pin(unpinned(AVX2)) == "portable"


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if k not in NAMES}
    words = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(words, env=own | env, capture_output=True, text=True, check=True)


@with_avx2
def test_libraries_of_a_command_take_what_is_pinned():
    code = (
        "from fedrepro.cli.main import main; main(['--help'])\n"
        "import numpy, torch, llvmlite.binding as llvm, scipy.linalg.blas\n"
        "from threadpoolctl import threadpool_info\n"
        "from numba.core.registry import cpu_target\n"
        "print(torch.backends.cpu.get_cpu_capability())\n"
        "print({p['architecture'] for p in threadpool_info() if p['internal_api'] == 'openblas'})\n"
        "print('X86_V4' in numpy.show_config(mode='dicts')['SIMD Extensions']['found'])\n"
        "print(cpu_target.target_context.codegen().magic_tuple()[1] == llvm.get_host_cpu_name())\n"
    )
    found = python(code).stdout.splitlines()
    assert found[-4:] == ["AVX2", "{'Haswell'}", "False", "True"]


def test_an_import_sets_nothing_says_nothing_and_results_say_so():
    code = (
        "import os; environment = dict(os.environ); import fedrepro; fedrepro.combine\n"
        "from fedrepro.core.provenance import origin\n"
        "print(dict(os.environ) == environment, origin()['arithmetic'])\n"
    )
    done = python(code)
    assert (done.stdout, done.stderr) == ("True not pinned\n", "")


@with_avx2
@pytest.mark.nightly
def test_dense_training_gives_the_same_bytes_in_vectors_of_any_width(tmp_path):
    """Bytes of compiled code for a Haswell, and for the widest vectors of this processor."""
    words = [sys.executable, str(HERE / "step_digests.py"), "logistic", "beliefs"]
    of_haswell, of_the_widest = (
        json.loads(subprocess.run(words, env=os.environ | own, stdout=subprocess.PIPE).stdout)
        for own in (NAMED, {})
    )
    assert of_haswell == of_the_widest


def test_nothing_else_steers_the_libraries():
    root = Path(kernel_pinning.__file__).parents[1]
    allowed = {"core/kernel_pinning.py", "core/diagnostics/machine_facts.py"}
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in (*NAMES, "NUMBA_CPU"))
    }
    assert found <= allowed


def test_a_product_or_root_by_mkl_would_be_seen():
    with asked_of_mkl() as found:
        one = torch.ones(4, 4)
        one @ one
        one.exp()
    assert found == ["SGEMM", "aten::exp"]
    with asked_of_mkl() as found:
        one + one
    assert found == []
    asked = {"pow": [(1.0, 0.5), (1.0, 1.5)], "sqrt_": [(1.0,)], "mul": [(1.0, 0.5)]}
    seen = [by_mkl(f"aten::{name}", words) for name, given in asked.items() for words in given]
    assert seen == [True, False, True, False]
