"""Tables of the paper, of five clients on MNIST by default; a method is a dict of its keys."""

from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}

MNIST = component("mnist", train=50000, validation=5000)
CIFAR = component("cifar10", validation=5000, features="lite0")
HAM = component("ham10000", features="convnet")
DIGITS = component("digits", validation=1000)

# At small scales digits stand in for every data set.
QUICK = exhibit(dataset=DIGITS, training={"epochs": 20, "lr": 0.003}, parameters={"points": 100})
FEW_POINTS = {"points": 20, "head_epochs": 2}
TINY = exhibit(dataset=DIGITS, training={"epochs": 2, "lr": 0.03}, parameters=FEW_POINTS, trials=2)
SMALL: dict[str, ExhibitData] = {"quick": QUICK, "tiny": TINY}

TWO: Entry = {"label": "J = 2", "partition": {"clients": 2}}
THREE: Entry = {"label": "J = 3", "partition": {"clients": 3}}
FIVE: Entry = {"label": "J = 5"}
NUMBERS_OF_CLIENTS = {"two": TWO, "three": THREE, "five": FIVE}

GLOBAL = component("pooled", "Global", reference=True)
LOCAL = component("local", "Local", spread="clients")
AVERAGED = component("average", "Averaged", weighted=False)
BASELINES = [GLOBAL, LOCAL, AVERAGED]
GEMS = component("gems_convex", "GEMS", space="ellipsoid")
BALLS = component("gems_convex", "GEMS, balls", space="ball")
NEURAL_GEMS = component("gems_neural", "GEMS")


def tuned(method: Entry, label: str = "", layers: str = "all") -> Entry:
    """Return `method`, tuned on 1,000 public images in "all" or "last" `layers`, as `label`."""
    tune = {"examples": 1000, "epochs": 5, "lr": 0.01, "layers": layers}
    return with_changes(method, label or f"{method['label']} tuned", tune=tune)


def tuned_last(method: Entry, label: str = "") -> Entry:
    return tuned(method, label, layers="last")


LOGISTIC = {
    "mnist": exhibit(parameters={"epsilon": 0.4, "epsilon_final": 0.7}),
    "cifar10": exhibit(dataset=CIFAR, parameters={"epsilon": 0.2, "epsilon_final": 0.2}, **SMALL),
    "ham10000": exhibit(dataset=HAM, parameters={"epsilon": 0.2, "epsilon_final": 0.25}, **SMALL),
}

AVERAGED_TUNED, GEMS_TUNED = tuned(AVERAGED), tuned(GEMS)
ALL_TUNED = [tuned(LOCAL), AVERAGED_TUNED, GEMS_TUNED, tuned(BALLS, "GEMS, balls, tuned")]
GEMS_NOTEBOOK = with_changes(GEMS, "GEMS, ε = 0.7", epsilon=0.7)  # as the authors' notebook has it
GEMS_HIGH = with_changes(GEMS, "GEMS, ε = 0.9", epsilon=0.9)
BALLS_HIGH = with_changes(BALLS, "GEMS, balls, ε = 0.9", epsilon=0.9)
HIGH_TUNED = tuned(GEMS_HIGH, "GEMS, ε = 0.9, tuned")

# hidden units, how far a unit's outputs may be from its own, m_ε, accuracy of good heads
OF_NETWORKS: dict[str, tuple[int, Entry]] = {
    "mnist": (50, {"epsilon_hidden": 1.0, "clusters": 100}),
    "cifar10": (100, {"epsilon_hidden": 0.3, "clusters": 200, "epsilon_final": 0.2}),
    "ham10000": (50, {"epsilon_hidden": 0.07, "clusters": 100, "epsilon_final": 0.25}),
}
NETWORKS = {
    data: exhibit(
        LOGISTIC[data],
        model=component("mlp", hidden=[units], dropout=0.5),
        training={"patience": 3, "init": "glorot"},
        parameters=parameters,
    )
    for data, (units, parameters) in OF_NETWORKS.items()
}
MNIST_NETWORKS = NETWORKS["mnist"]
NETWORK = {key: MNIST_NETWORKS[key] for key in ("model", "training", "parameters")}  # for cases

AVERAGED_LAST, NEURAL_LAST = tuned_last(AVERAGED), tuned_last(NEURAL_GEMS)
ALL_LAST = [tuned_last(LOCAL), AVERAGED_LAST, NEURAL_LAST]
UNITS_DRAWN = with_changes(NEURAL_GEMS, "Units drawn", units="drawn")
UNITS_DRAWN_LAST = tuned_last(UNITS_DRAWN, "Units drawn, tuned")
IN_TUPLES: Entry = {"epsilon_hidden": 0.01, "clusters": 1, "merge": "tuples"}  # not clusters
ENDS = {"mnist": "", "cifar10": ", CIFAR-10", "ham10000": ", HAM10000"}  # of titles
CLASSES = dict.fromkeys(ENDS, "two classes each") | {"ham10000": "classes of their own"}

for data, logistic in LOGISTIC.items():
    exhibits[f"table-1-{data}"] = exhibit(
        logistic,
        title=f"Logistic models of five clients with {CLASSES[data]}{ENDS[data]}",
        place="section 4.2, table 1",
        caption="""Test accuracy in percent of logistic models trained on all data (Global), of
            clients alone (Local, mean and spread over clients), of their average, and of a point in
            the intersection of their ellipsoids (GEMS) or balls; the same after tuning on 1,000
            public images. Means over trials, with one standard deviation.""",
        methods=[*BASELINES, GEMS, BALLS, *ALL_TUNED],
    )
exhibits["table-1-mnist"]["headline"] = True

for data, logistic in LOGISTIC.items():
    exhibits[f"table-5-{data}"] = exhibit(
        logistic,
        title=f"Logistic models of two, three and five clients{ENDS[data]}",
        place="appendix C.1, table 5",
        caption=f"""As table 1, with other numbers of clients J, and with ε = 0.9 beside the printed
            {logistic["parameters"]["epsilon"]}.""",
        methods=[*BASELINES, GEMS, BALLS, GEMS_HIGH, BALLS_HIGH, *ALL_TUNED, HIGH_TUNED],
        cases=NUMBERS_OF_CLIENTS,
    )

for data, networks in NETWORKS.items():
    exhibits[f"table-2-{data}"] = exhibit(
        networks,
        drawing=component("table", sizes=True),
        title=f"Networks of five clients with {CLASSES[data]}{ENDS[data]}",
        place="section 4.3, table 2",
        caption="""As table 1, of networks with one hidden layer, and of as many of the clients'
            units drawn at random; the same after tuning the last layer. Also hidden units.""",
        methods=[*BASELINES, NEURAL_GEMS, *ALL_LAST, UNITS_DRAWN, UNITS_DRAWN_LAST],
    )

CIFAR_TUPLES = with_changes(IN_TUPLES, epsilon_hidden=0.1)
for table, data, tuples, three in (
    (6, "mnist", IN_TUPLES, THREE),
    (7, "cifar10", CIFAR_TUPLES, with_changes(THREE, parameters={"clusters": 150})),
    (8, "ham10000", IN_TUPLES, THREE),
):
    exhibits[f"table-{table}"] = exhibit(
        exhibits[f"table-2-{data}"],
        title=f"Networks of two, three and five clients{ENDS[data]}",
        place=f"appendix C.2, table {table}",
        caption="""As table 2, with other numbers of clients J, each with its ε_hidden and m_ε. One
            cluster, with two clients, stands for none: units of both then merge in pairs.""",
        cases={"two": with_changes(TWO, parameters=tuples), "three": three, "five": FIVE},
    )

OF_CASES = "dataset", "model", "training", "parameters"
NETWORK_CASE: Entry = {
    "label": "network",
    "methods": [NEURAL_GEMS, *ALL_LAST],
    "without": ["GEMS, balls", "GEMS, balls, tuned"],
}

LOGISTIC_CASE: Entry = {"label": "logistic", "parameters": {"epsilon": 0.2}}
exhibits["in-all"] = exhibit(
    drawing=component("table", rows=["case"], columns=["method"], best="row"),
    title="The six cases of tables 1 and 2",
    place="sections 1 and 5",
    caption="What sentences on all of tables 1 and 2 are judged by, from their runs.",
    methods=exhibits["table-1-mnist"]["methods"],
    cases={
        "mnist-logistic": {"label": "logistic"},
        "cifar10-logistic": {**LOGISTIC_CASE, "dataset": CIFAR},
        "ham10000-logistic": {**LOGISTIC_CASE, "dataset": HAM},
        **{
            f"{data}-network": NETWORK_CASE | {key: on[key] for key in OF_CASES if key in on}
            for data, on in NETWORKS.items()
        },
    },
    scales=["paper"],
)

KEYS = ["epsilon_hidden", "clusters"]
AS_PUBLISHED = [
    with_changes(NEURAL_GEMS, "GEMS, as published", as_published=True),
    with_changes(NEURAL_LAST, "GEMS tuned, as published", as_published=True),
]
ENSEMBLES = [
    component("voting_ensemble", "Ensemble"),
    component("uniform_ensemble", "Ensemble, probabilities"),
]
MNIST_SIZES: Entry = {"epsilon_hidden": [0.5, 1.0], "clusters": [50, 75, 100]}
CIFAR_SIZES: Entry = {"epsilon_hidden": [0.3, 0.5, 0.7], "clusters": [100, 150, 200]}
HAM_SIZES: Entry = {"settings": [{"epsilon_hidden": 0.07, "clusters": m} for m in (50, 75, 100)]}
for table, data, place, sizes in (
    (9, "mnist", "appendix C.3, table 9", MNIST_SIZES),
    (3, "cifar10", "section 4.5, table 3; appendix C.3, table 10", CIFAR_SIZES),
    (11, "ham10000", "appendix C.3, table 11", HAM_SIZES),
):
    networks, also = NETWORKS[data], AS_PUBLISHED if data == "mnist" else []
    methods = [NEURAL_GEMS, NEURAL_LAST, *also, UNITS_DRAWN, UNITS_DRAWN_LAST]
    exhibits[f"table-{table}"] = exhibit(
        networks,
        drawing=component("table", rows=["method", *KEYS], sizes=True, best="none"),
        title=f"Size and accuracy of networks of five clients{ENDS[data]}",
        place=place,
        caption="""As table 2, by how far a unit's outputs may be from its own (ε_hidden) and the
            number of clusters (m_ε), beside ensembles of the clients' networks.""",
        parameters={k: v for k, v in networks["parameters"].items() if k == "epsilon_final"},
        methods=[*(with_changes(method, **sizes, show=KEYS) for method in methods), *ENSEMBLES],
    )
