"""Pictures that a command draws into files."""

from pathlib import Path
from typing import TYPE_CHECKING

from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 110


def check_matplotlib() -> None:
    """Find out before a long run that a picture can be drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401  (its presence is what is asked)
    except ImportError:
        raise ConfigError(
            "--plot needs matplotlib; pip install 'tandem-llm[plot]'", param="plot"
        ) from None


def check_folder(folder: Path) -> None:
    """Likewise, that there is where it is to lie.

    Raises:
        ConfigError: it is no folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; give --plot one that exists", param="plot")


def check_plot(path: Path) -> None:
    """Likewise, both, for one file.

    Raises:
        ConfigError: matplotlib is not installed, or the file cannot be such a picture.
    """
    check_matplotlib()
    if path.suffix != ".png":
        raise ConfigError(f"--plot writes a PNG; name {path} with .png at its end", param="plot")
    check_folder(path.parent)


def save_picture(figure: "Figure", path: Path) -> None:
    """Write it.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; name another file", param="plot"
        ) from None
