"""Read and write YAML: by libyaml where PyYAML was built with it, eight times as fast."""

from __future__ import annotations

from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CheckedLoader(LOADER):  # type: ignore[misc]
    """PyYAML's loader, but a mapping that has a key twice raises ValueError."""

    def flatten_mapping(self, node: Any) -> None:
        """Raise if mapping `node` has a key twice; else merge in the mappings that << refers to."""
        if hasattr(node, "flat"):
            return
        node.flat, keys = True, set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            # `1` and `0x1` are one key of a dictionary; what merges others (<<) is not made a value
            plain_key = key.value if key.tag.endswith(":merge") else self.construct_object(key)
            if plain_key in keys:
                where = f"the second time in line {key.start_mark.line + 1}"
                raise ValueError(f"the key '{key.value}' stands twice in one place, {where}")
            keys.add(plain_key)
        super().flatten_mapping(node)


def parse_yaml(text: str) -> Any:
    """Return the plain values of a YAML text; raise ValueError, also if a key stands twice."""
    try:
        return yaml.load(text, Loader=CheckedLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def yaml_text(values: Any) -> str:
    """Return plain values as YAML text: keys in the dicts' order, no anchors."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    whole = type("Whole", (dumper,), {"ignore_aliases": lambda self, data: True})
    form: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100}
    return str(yaml.dump(values, Dumper=whole, default_flow_style=None, **form))
