"""Pictures that a command is asked to draw into a file."""

from pathlib import Path

from tandem.spec.errors import ConfigError


def check_plot(path: Path) -> None:
    """Find out before a long run that a picture can be drawn, and where.

    Raises:
        ConfigError: matplotlib is not installed, or the file cannot be such a picture.
    """
    try:
        import matplotlib  # noqa: F401  (its presence is what is asked)
    except ImportError:
        raise ConfigError(
            "--plot needs matplotlib; pip install 'tandem-llm[plot]'", param="plot"
        ) from None
    if path.suffix != ".png":
        raise ConfigError(f"--plot writes a PNG; name {path} with .png at its end", param="plot")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is not a folder; give --plot one that exists")
