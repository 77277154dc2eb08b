"""The machine's profile that `profile_part` stored."""

import os
from collections.abc import Mapping

from tandem.devices.this_machine import cache_folder, code_digest, this_machine
from tandem.profiling.profile import Profile
from tandem.profiling.profile_file import profile_path, read_profile


def stored_profile(environment: Mapping[str, str] = os.environ) -> Profile:
    """What `profile_part` found on this machine.

    Args:
        environment: of the part.

    Raises:
        ConfigError: there is none, or it is of other kernels.
    """
    machine = this_machine(environment)
    path = profile_path(cache_folder(environment), machine)
    return read_profile(path, machine, code_digest())
