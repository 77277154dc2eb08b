"""Where there is a compiler, the compiled kernels are there: otherwise their tests would be skipped
unnoticed.
"""

import shutil

import pytest

from tandem.kernels import native


def test_a_set_up_with_a_compiler_has_built_the_kernels() -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler here")
    assert native.available(), native.unavailable_message()
