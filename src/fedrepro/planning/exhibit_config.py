"""A figure's or table's configuration: typed classes, and functions that build plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, SerializeAsAny, Tag, model_validator

from fedrepro.core.errors import shown
from fedrepro.core.evaluation_schedule_and_successive_halving import SELECTION_RULES, SelectionRule
from fedrepro.core.metrics import all_metrics
from fedrepro.core.registry import GRAPH, SCENARIO, WITHOUT_GRAPH, component_called
from fedrepro.core.spec import Spec
from fedrepro.planning.drawing_base import Drawing, Strict, one_of

Scale = Literal["tiny", "quick", "paper"]
SCALES: tuple[Scale, ...] = ("tiny", "quick", "paper")
Trials = Annotated[int, Field(ge=1, le=10_000)]
Every = Annotated[int, Field(ge=1)] | Literal["auto"]
Entry = dict[str, Any]  # a component: its name, and its parameters as further keys
ExhibitData = dict[str, Any]  # keys of an exhibit, or of the defaults of a file; config/README.md
PaperData = dict[str, Any]  # keys of a file of exhibits, which a paper's `EXHIBITS` has


class ComponentEntry(Strict, extra="allow"):
    """A data set, model, method or other component in a configuration: its name and parameters."""

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def changed(self, changes: Mapping[str, Any]) -> ComponentEntry:
        """Return a copy with `changes` of parameters; a new `name` there drops old parameters."""
        kept = self.parameters if changes.get("name", self.name) == self.name else {}
        return ComponentEntry.model_validate({"name": self.name, **kept, **changes})

    def spec(self, kind: str, extra: Mapping[str, Any] = {}, *, sweep: bool = False) -> Spec:
        """Build the Spec of `kind`, as "model", with `extra` values on top; lists need `sweep`."""
        spec = component_called(kind, self.name).spec({**self.parameters, **extra})
        return spec if sweep else spec.single()


def _with_a_name(changes: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(changes.get("name", ""), str):
        raise ValueError(f"its name must be a text, not {shown(changes['name'])}")
    return changes


Changes = Annotated[dict[str, Any], AfterValidator(_with_a_name)]


def key(default: Any, description: str, **bounds: Any) -> Any:
    """Declare a key of a configuration class, with `description` and pydantic's `bounds`, as ge=1.

    `default` is a value, `...` if the key is required, or a type, such as list, for an empty one.
    """
    kind = "default_factory" if isinstance(default, type) else "default"
    return Field(**{kind: default}, description=description, **bounds)


RuleName = Annotated[str, one_of(lambda: SELECTION_RULES, "the rules of choice are {}")]
Directed = Annotated[
    str,
    one_of(
        lambda: (name for name, metric in all_metrics().items() if metric.better),
        "a setting is chosen by one of {}",
    ),
]
HeldOut = Annotated[
    str,
    one_of(
        lambda: (rule.split for rule in SELECTION_RULES.values()),
        "a setting is chosen on one of {}; no other split may be",
    ),
]


class ChoiceEntry(Strict):
    """A rule that selects one setting of a parameter sweep, written as keys and not as a name."""

    metric: Directed = key(..., "the number to choose by")
    split: HeldOut = key(..., "where it is measured")
    over: Literal["end", "half"] = key(
        "end",
        "of a method in rounds: its value at the end, or on average over the second half of the "
        "rounds that all settings ran",
    )

    @property
    def choice(self) -> SelectionRule:
        """Return the rule that selects by this metric and split: a predefined one, if it exists."""
        near = [rule for rule in SELECTION_RULES.values() if rule.split == self.split]
        same = [rule for rule in near if rule.metric == self.metric]
        if same and self.over == "end":
            return same[0]
        half = "on average over the second half of the rounds that all of them ran"
        how = half if self.over == "half" else "at the end"
        title = all_metrics()[self.metric].title
        text = f"{title}, split {self.split}, {how}, mean of trials"
        name, need = f"{self.metric} on {self.split}, {self.over}", (same or near)[0].need
        return SelectionRule(name, self.metric, self.split, self.over, need, text)


# decided before validation, so that an error speaks of the form that was meant
Rule = Annotated[
    Annotated[RuleName, Tag("name")] | Annotated[ChoiceEntry, Tag("rule")],
    Discriminator(lambda choose: "name" if isinstance(choose, str) else "rule"),
]


class MethodEntry(ComponentEntry):
    """A method in a figure's configuration; a list of values for a parameter is a sweep."""

    label: str | None = key(None, "name in the legend")
    trials: Trials | None = key(None, "trials, where they differ from the exhibit's")
    choose: Rule | None = key(
        None, "how one setting of a sweep is chosen, over all trials: a rule, or the keys of one"
    )
    settings: list[dict[str, Any]] | Literal["grid"] = key(
        list,
        "settings one by one, such as [{epochs: 1, lr: 0.1}, {epochs: 5, lr: 0.02}], in place of "
        "every combination; grid: those that the method declares for comparisons",
    )
    training: Changes = key(
        dict, "what differs in the local training of this method; a list is a sweep"
    )
    tune: dict[str, Any] | None = key(
        None,
        "further training on a public sample before it is measured: examples, repetitions, "
        "epochs, lr, layers, patience; a list is a sweep. {} takes all defaults",
    )
    spread: Literal["trials", "clients"] = key(
        "trials", "its mean is shown with the sd over trials, or over clients' means over trials"
    )
    show: list[str] = key(
        list, "swept parameters of which every value is shown; of the others one is chosen"
    )
    measure_every: Every | None = key(
        None,
        "rounds between two measurements, or auto: every round up to 50, then every 2 %; the first "
        "and the last round are always measured; by default as the exhibit says",
    )
    until: float | None = key(
        None, "test accuracy that ends a run; metric rounds_to_target is the round", gt=0, lt=1
    )
    node: Annotated[int, Field(ge=1)] | None = key(
        None, "the node, counted from 1, whose numbers are shown, of a method that measures each"
    )
    belief: Literal["before", "after"] | None = key(
        None, "on a graph: what a node believes before or after its neighbours' beliefs come in"
    )
    reference: bool = key(False, "drawn as a thin dashed line: a bound, not a rival")
    paired_with: str = key(
        "", "label of the method that it is compared with where it has fewer trials than others"
    )


class Case(Strict):
    """One of several scenarios of a figure or table; dataset, …: what differs in this scenario."""

    label: str = key(..., "how it is called in the figure")
    dataset: Changes = Field(default_factory=dict)
    partition: Changes = Field(default_factory=dict)
    model: Changes = Field(default_factory=dict)
    training: Changes = Field(default_factory=dict)
    graph: Changes = Field(default_factory=dict)
    trials: Trials | None = key(None, "seeded repetitions, where they differ from the exhibit's")
    parameters: dict[str, Any] = key(
        dict, "values for methods of this case that have such a parameter and do not set it"
    )
    measure_every: Every | None = key(None, "rounds between two measurements, if they differ here")
    methods: list[MethodEntry] = key(
        list, "methods of this case: one with a label of the exhibit replaces it, others are added"
    )
    without: list[str] = key(list, "labels of methods of the exhibit that this case leaves out")
    trials_of: dict[str, Trials] = key(dict, "repetitions of single methods by label in this case")


class ExhibitSettings(Strict):
    """The configuration of a figure or table at one scale, after defaults are merged in."""

    title: str = key(..., "what it shows, in a line")
    place: str = key(..., "where it stands in the paper")
    caption: str = key(..., "sentence under the figure")
    headline: bool = key(False, "part of the default set")
    scales: list[Scale] = Field(
        default_factory=lambda: list(SCALES), description="scales at which there is such an exhibit"
    )
    drawing: SerializeAsAny[Drawing] = key(
        ..., "how it is shown: a drawing by name, with its options beside the name"
    )
    size: Literal["hidden_units", "parameters"] = key(
        "parameters", "which size of models is shown; hidden_units for fully connected ones only"
    )
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = key(
        ..., "parameters that vary along the horizontal axis, as component.parameter"
    )
    cases: dict[str, Case] = key(
        dict, "scenarios side by side: a label, and what differs of data set, partition and so on"
    )
    dataset: ComponentEntry | None = None
    partition: ComponentEntry | None = None
    model: ComponentEntry | None = None
    training: ComponentEntry | None = None
    graph: ComponentEntry | None = key(
        None, "whom the clients hear: for peer methods alone, all others are without"
    )
    methods: list[MethodEntry] = Field(min_length=1)
    parameters: dict[str, Any] = key(
        dict, "values, such as rounds, for methods that have such a parameter and do not set it"
    )
    trials: Trials = key(..., "seeded repetitions")
    trials_of: dict[str, Trials] = key(
        dict, "repetitions of single methods by their labels, before the method's own `trials`"
    )
    measure_every: Every = key(
        1, "rounds between two measurements, of methods that do not say it themselves"
    )
    last_rounds: Annotated[int, Field(ge=1)] = key(
        1,
        "methods in rounds are compared by the mean over this number of last measured rounds; "
        "accuracy_scatter is their standard deviation",
    )
    by_rounds: bool = key(
        False, "whether the csv has single rounds where the drawing does not show them, for a claim"
    )
    paired: bool = key(
        False,
        "whether methods may have fewer trials than others: they are shown as the mean of the "
        "method `paired_with` over all trials plus the difference in the trials that both have",
    )
    notes: list[str] = key(list, "what this project chose where the paper is silent")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        lacking = [kind for kind in WITHOUT_GRAPH if getattr(self, kind) is None]
        if 0 < len(lacking) < len(WITHOUT_GRAPH):
            said = f"the key '{lacking[0]}' is missing; simulations leave out all of"
            raise ValueError(f"{said} {', '.join(WITHOUT_GRAPH)}, and nothing else does")
        return self

    def case(self, key: str | None) -> Case:
        return Case(label="") if key is None else self.cases[key]

    def components(self, case: str | None) -> dict[str, ComponentEntry]:
        """Return {kind, as "model": its configuration} in scenario `case` (None: the only one)."""
        by_kind: dict[str, ComponentEntry] = {}
        for kind in SCENARIO:
            base, changes = getattr(self, kind), getattr(self.case(case), kind)
            if base is not None:
                by_kind[kind] = base.changed(changes)
            elif kind == GRAPH and "name" in changes:
                by_kind[kind] = ComponentEntry.model_validate(changes)
        return by_kind


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested dicts, `above` over `below`; a dict whose `name` changes is replaced whole."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        old, new = below[key], above[key]
        nested = isinstance(old, Mapping) and isinstance(new, Mapping)
        if nested and new.get("name", old.get("name")) == old.get("name"):
            merged[key] = merge(old, new)
    return merged


def exhibit(*others: ExhibitData, **keys: Any) -> ExhibitData:
    """Build a figure's configuration: `keys` replace keys of `others`, and these earlier ones'.

    Texts lose line breaks. Keys tiny, quick, paper become `at`: what differs at each size.
    """
    at = {scale: keys.pop(scale) for scale in SCALES if scale in keys}
    keys |= {"at": at} if at else {}
    merged = {key: value for one in (*others, keys) for key, value in one.items()}
    for key in merged.keys() & {"title", "caption"}:
        merged[key] = " ".join(merged[key].split())
    if "notes" in merged:
        merged["notes"] = [" ".join(note.split()) for note in merged["notes"]]
    return merged


def component(name: str, label: str = "", /, **parameters: Any) -> Entry:
    """Build the configuration of a data set, method, …: name, label in legends, parameters."""
    return with_changes({"name": name}, label, **parameters)


def with_changes(other: Entry, label: str = "", /, **changes: Any) -> Entry:
    """Return a copy of a component's configuration with another label or other parameters."""
    return {**other, **({"label": label} if label else {}), **changes}
