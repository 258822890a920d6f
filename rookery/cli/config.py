"""The config that a command line stands for, and `rookery config show`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from rookery import output
from rookery.cli.exits import OK
from rookery.cli.options import client_of
from rookery.errors.words import ARGUMENTS, bare

FLAGS = {f"--{name.replace('_', '-')}": key for name, key in ARGUMENTS.items()}  # option -> key


def config_from(arguments: argparse.Namespace) -> Any:
    from rookery.config.parent import with_parent
    from rookery.config.reading import build, load_yaml, merged_layers

    file = [load_yaml(arguments.config)] if arguments.config else []
    asked = merged_layers(*file, *layers_from(arguments))
    return build(with_parent(asked, lambda name: client_of(arguments).run(name).config()))


def layers_from(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """What the options say, over a file's config."""
    from rookery.config.parent import parent_named
    from rookery.config.reading import assignment, nested, seats_from, self_play

    layers: list[dict[str, Any]] = []
    if arguments.parent:
        layers.append({"parent": parent_named(arguments.parent)})
    if arguments.environment:
        layers.append({"environment": {"id": arguments.environment}})
    flags = {key: getattr(arguments, bare(option)) for option, key in FLAGS.items()}
    for key, value in {**flags, "bus.kind": _bus_kind(arguments.bus)}.items():
        if value is not None:
            layers.append(nested(key, value))
    if arguments.self_play:
        layers.append(self_play())
    if arguments.seats:
        layers.append({"seats": seats_from(arguments.seats)})
    layers += [assignment(text) for text in arguments.set]
    options = environment_options(arguments)
    if options:
        layers.append({"environment": {"kwargs": options}})
    return layers


def _bus_kind(asked: str | None) -> str | None:
    """A URI says where the cluster is; what the config holds of it is that there is one."""
    uri = asked or os.environ.get("ROOKERY_BUS")
    return uri.partition(":")[0] if uri else None


def environment_options(arguments: argparse.Namespace) -> dict[str, Any]:
    from rookery.config.reading import parse_value

    pairs = (text.partition("=") for text in arguments.env_options)
    return {key: parse_value(value) for key, _, value in pairs}


def config_show(arguments: argparse.Namespace, began: float) -> int:
    from rookery.config.models import RunConfig

    if arguments.schema:
        output.print_json(RunConfig.model_json_schema(), None if arguments.json else 2)
        return OK
    config = config_from(arguments).model_dump(mode="json")
    if arguments.json:
        output.print_json(config)
    else:
        import yaml

        print(yaml.safe_dump(config, sort_keys=False), end="")
    return OK
