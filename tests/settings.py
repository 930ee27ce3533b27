"""Settings for tests that run through all methods."""

from __future__ import annotations

from typing import Any

from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.settings import Declared, declared
from sbtrpo.config.train import all_settings


def concerning(algo: str, **settings: Any) -> dict[str, Any]:
    """Those of the settings that every run has, or this method; all of them are some method's."""
    known = all_settings(catalogue.method(algo))
    assert all(name in known or catalogue.owners(name) for name in settings)
    return {name: value for name, value in settings.items() if name in known}


def config_of(algo: str, **settings: Any) -> TrainConfig:
    """A run of a method, with those of the settings that concern it."""
    return TrainConfig(algo=algo, **concerning(algo, **settings))


def quirks_of(algo: str) -> dict[str, Declared]:
    """The quirks of a method's published code, by the settings that turn them off."""
    return {name: item for name, item in declared(catalogue.method(algo).settings).items() if item.is_quirk}
