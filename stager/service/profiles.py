"""Profiles for planning, with or without a scheduler. One rule: reading them changes nothing."""

from __future__ import annotations

from stager.adapters.profiles_store import read_profiles
from stager.model.profile import Profiles
from stager.service.settings import Settings
from stager.service.state_dir import StateDir


def load_profiles(settings: Settings) -> Profiles:
    return read_profiles(StateDir(settings.state_dir).profiles)
