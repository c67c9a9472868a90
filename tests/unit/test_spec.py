"""Tokens: a path is its parameters, and reading is the inverse of writing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.params import SAFE, read_signature, render
from fedrepro.core.registry import KINDS, components, parse_token
from fedrepro.core.spec import Arg, Component

LR = Annotated[float, Arg("rate")]


def example(
    *,
    clients: Annotated[int, Arg("clients", least=1)],
    alpha: Annotated[float, Arg("concentration", above=0)] = 0.2,
    balance: Annotated[bool, Arg("balanced")] = False,
    cap: Annotated[int | None, Arg("cap")] = 10,
    hidden: Annotated[tuple[int, ...], Arg("widths", least=1)] = (50,),
    order: Annotated[Literal["random", "fixed"], Arg("order")] = "random",
) -> None:
    """An example.

    More of it.
    """


COMPONENT = Component("method", "example", 3, example)
METHOD = components("method")["average"].spec()


@pytest.fixture(scope="module", autouse=True)
def _known():
    components("method")["example"] = COMPONENT
    yield
    del components("method")["example"]


VALUES = st.fixed_dictionaries(
    {"clients": st.integers(1, 10**6)},
    optional={
        "alpha": st.one_of(
            st.floats(1e-12, 1e12),
            st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=4, unique=True),
        ),
        "balance": st.booleans(),
        "cap": st.none() | st.integers(-5, 5),
        "hidden": st.lists(st.integers(1, 500), min_size=1, max_size=4),
        "order": st.sampled_from(["random", "fixed"]),
    },
)


@given(VALUES)
def test_parse_is_the_inverse_of_token_which_is_safe_in_a_path(values):
    spec = COMPONENT.spec(values)
    again = parse_token("method", spec.token)
    assert (again, again.values, again.resolved) == (spec, spec.values, spec.resolved)
    assert all(SAFE.fullmatch(part) for part in re.split("[+~@]", spec.token))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_its_text(value):
    assert float(render(value)) == value
    assert "+" not in render(value)


def test_a_token_has_what_differs_and_a_sweep_expands_in_the_order_written():
    spec = COMPONENT.spec({"order": "fixed", "clients": 25, "alpha": 0.2, "hidden": [50]})
    assert spec.token == "example+clients~25+order~fixed"
    whole = "example;v3;alpha~0.2+balance~false+cap~10+clients~25+hidden~50+order~fixed"
    assert spec.resolved == whole
    spec = COMPONENT.spec({"clients": 2, "alpha": [1, 0.5, 10]})
    assert spec.swept == ("alpha",)
    assert [one["alpha"] for one in spec.expand()] == [1.0, 0.5, 10.0]
    assert spec.token == "example+alpha~1@0.5@10+clients~2"
    assert COMPONENT.spec({"clients": 2, "alpha": [0.5]}).swept == ()


def test_of_a_later_parameter_files_speak_only_where_it_has_another_value():
    def grown(
        *,
        rate: Annotated[float, Arg("rate")] = 0.5,
        patience: Annotated[int, Arg("patience", least=0, later=True)] = 0,
    ) -> None:
        """Grown."""

    component = Component("training", "grown", 1, grown)
    usual, other = component.spec(), component.spec({"patience": 3})
    assert usual.resolved == "grown;v1;rate~0.5"
    assert other.resolved == "grown;v1;patience~3+rate~0.5"
    assert usual.values == {"rate": 0.5, "patience": 0}
    rows = [MetricRow(0, METHOD, "accuracy", 1.0)]
    assert "training_patience" not in Table([usual], rows).arrow().column_names
    table = Table([other], rows).arrow()
    assert table["training_patience"].to_pylist() == [3]
    assert table["method_name"].to_pylist() == ["average"]


ONE_BY_ONE = st.lists(
    st.fixed_dictionaries(
        {"clients": st.integers(1, 9)},
        optional={"alpha": st.floats(1e-12, 1e12), "cap": st.none() | st.integers(-5, 5)},
    ),
    min_size=1,
    max_size=5,
)


@given(ONE_BY_ONE)
def test_settings_listed_one_by_one_are_those_of_their_token(settings):
    each = [COMPONENT.spec(setting) for setting in settings]
    if len(set(each)) < len(each):
        with pytest.raises(FedreproError, match="lists a setting twice"):
            COMPONENT.paired({}, settings)
        return
    spec = COMPONENT.paired({}, settings)
    assert list(spec.expand()) == each
    assert parse_token("method", spec.token) == spec
    assert all(SAFE.fullmatch(part) for part in re.split("[+~@]", spec.token))


def test_listed_settings_that_are_a_sweep_are_written_as_one_and_pairs_are_not():
    spec = COMPONENT.paired({"clients": 4}, [{"alpha": 0.1}, {"alpha": 0.2}])
    assert spec.token == COMPONENT.spec({"clients": 4, "alpha": [0.1, 0.2]}).token
    assert COMPONENT.paired({"clients": 4}, [{"alpha": 0.5}]).token == "example+alpha~0.5+clients~4"
    pairs = COMPONENT.paired({}, [{"clients": 1, "cap": 2}, {"clients": 3, "cap": 4}])
    every = COMPONENT.spec({"clients": [1, 3], "cap": [2, 4]})
    assert pairs.token == "example+cap~2@4+clients~1@3+paired~2"
    assert pairs != every
    assert pairs.resolved != every.resolved
    assert (len(list(pairs.expand())), len(list(every.expand()))) == (2, 4)


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("exampel+clients~2", "did you mean 'example'"),
        ("example+client~2", "did you mean 'clients'"),
        ("example", "needs a value for its parameter 'clients'"),
        ("example+clients~0", "must be at least 1"),
        ("example+clients~2.5", "cannot be read from '2.5'"),
        ("example+alpha~0+clients~2", "must be above 0"),
        ("example+clients~2+order~backwards", "must be one of random, fixed"),
        ("example+clients", "not of the form key~value"),
        ("example+alpha~nan+clients~2", "must be a number"),
        ("example+clients~", "not of the form key~value"),
        ("example+~1", "unknown parameter ''"),
        ("example+clients~1+paired~2", "give each parameter a list"),
        ("example+cap~1@1+clients~2@2+paired~2", "lists a setting twice"),
    ],
)
def test_a_bad_token_is_refused_with_a_sentence(token, sentence):
    with pytest.raises(FedreproError, match=sentence.replace("+", r"\+")):
        parse_token("method", token)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"clients": True}, "must be a whole number"),
        ({"clients": 2, "balance": 1}, "must be true or false"),
        ({"clients": 2, "hidden": []}, "empty list"),
        ({"clients": 2, "alpha": []}, "empty list"),
        ({"clients": 2, "alpha": [1, 1.0]}, "lists a value twice"),
        ({"clients": None}, "cannot be none"),
        ({"clients": 10**7}, "must be at most 1,000,000, not 10000000"),
        ({"clients": 2, "alpha": 1e300}, r"at most 1e\+38 in size"),
        ({"clients": 10**400}, r"at most 1e\+38 in size"),
        ({"clients": 2, "hidden": [None, 5]}, "none in a list"),
        ({"clients": {"a": ["b"] * 99}}, r"not \{'a': \['b', .{60,90}…$"),
        ({"clients": "a\nb"}, r"not 'a\\nb'"),
    ],
)
def test_bad_values_from_yaml_are_refused_with_a_sentence(values, sentence):
    with pytest.raises(FedreproError, match=sentence):
        COMPONENT.spec(values)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_component_can_be_named_by_tokens(kind):
    for name, component in components(kind).items():
        needed = [p for p in component.params.values() if p.required]
        spec = component.spec({p.name: "2" if p.type is str else 2 for p in needed})
        assert parse_token(kind, spec.token) == spec
        assert spec.token.startswith(name)
        assert component.doc
        assert component.version >= 1
        for param in component.params.values():
            assert param.arg.doc, f"{kind} {name}: parameter {param.name} has no description"
            if not param.required and param.default is not None and not param.many:
                assert param.check(param.default, "default") == param.default


def test_parameters_of_a_class_are_those_of_its_dataclass_or_of_the_init_it_wrote():
    @dataclass(kw_only=True)
    class Fields:
        rounds: Annotated[int, Arg("rounds")] = 3

    class Written(Fields):
        def __init__(self, *, rounds: Annotated[int, Arg("of each")] = 4, lr: LR = 0.5) -> None:
            super().__init__(rounds=rounds)

    class Inherited(Written):
        pass

    @dataclass(kw_only=True)
    class More(Fields):
        lr: LR = 0.1

    def found(kind):
        return {name: (p.default, p.arg.doc) for name, p in read_signature(kind).items()}

    assert found(Fields) == {"rounds": (3, "rounds")}
    assert found(More) == {"rounds": (3, "rounds"), "lr": (0.1, "rate")}
    assert found(Written) == found(Inherited) == {"rounds": (4, "of each"), "lr": (0.5, "rate")}


def test_what_all_of_a_kind_have_is_common_also_where_one_declares_it_itself():
    def common(*, held: Annotated[int, Arg("held out")] = 0) -> None: ...

    def own(*, held: Annotated[int, Arg("held out")] = 5, lr: LR = 0.5) -> None: ...

    spec = Component("partition", "own", 1, own, common=common).spec({"held": 7})
    assert spec.common == {"held": 7}


def test_a_parameter_is_described_and_a_list_is_refused_where_one_value_is_needed():
    def plain(x: int, *, rng: int = 0) -> None: ...

    def bad(*, what: Annotated[dict, Arg("a mapping")]) -> None: ...

    assert read_signature(plain) == {}
    with pytest.raises(TypeError, match="what"):
        read_signature(bad)
    swept = COMPONENT.spec({"clients": 2, "alpha": [1, 2]})
    with pytest.raises(FedreproError, match=r"here: method .* under sweep, as method\.alpha"):
        swept.single("here")
    one = COMPONENT.spec({"clients": 2})
    assert one.single() is one
    with pytest.raises(FedreproError, match="'clients' lists several values, 2@3"):
        parse_token("partition", "iid+clients~2@3")
    with pytest.raises(FedreproError, match="'hidden' is a list itself"):
        COMPONENT.paired({"clients": 1}, [{"hidden": [5], "cap": 1}, {"hidden": [6], "cap": 2}])
    assert parse_token("method", "pfnm+sigma2~0.1@1").swept == ("sigma2",)
