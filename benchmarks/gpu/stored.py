"""The machine's profile that `profile_part` stored."""

import os

from tandem.devices.this_machine import cache_folder, code_digest, this_machine
from tandem.profiling.profile import Profile
from tandem.profiling.profile_file import profile_path, read_profile


def stored_profile() -> Profile:
    """What `profile_part` found on this machine.

    Raises:
        ConfigError: there is none.
    """
    machine = this_machine(os.environ)
    path = profile_path(cache_folder(os.environ), machine)
    return read_profile(path, machine, code_digest())
