"""The text of a YAML file: by libyaml where PyYAML was built with it, eight times as fast."""

from __future__ import annotations

from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 100  # libyaml calls itself for each level, and thousands of levels end the process


def parse_yaml(text: str) -> Any:
    """What the text says, by plain values only.

    Errors: ValueError with one line for what is not YAML or lists within more than 100 lists.
    """
    try:
        depth = 0
        for event in yaml.parse(text, Loader=LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} lists or keys within each other")
        return yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from None
