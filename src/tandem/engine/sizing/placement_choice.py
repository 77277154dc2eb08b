"""Where the weights are: as the user's file says, or the simplest placement that fits. Pure."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tandem.cost.expert_use import ExpertUse
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.disk_choice import (
    choose_beside_accelerator,
    choose_disk_placement,
    least_host_bytes,
)
from tandem.engine.sizing.expert_placement import check_experts, split_placements
from tandem.engine.sizing.kv_reserve import HostKV, host_kv, kv_reserve
from tandem.engine.sizing.mlp_choice import Placement, PlacementTimes
from tandem.engine.sizing.placement_file import read_placement
from tandem.engine.sizing.weight_placement import (
    WeightSizes,
    all_resident,
    refuse_fixed,
    refuse_tied,
)
from tandem.memory.budget import CAPACITY_PARAMS, MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.plan.weights import MLPS_APART, Home, PlacedWeights, disk_layers
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError, ShortOfMemoryError

_ON_CPU: Home = "cpu-mlp"
_DEVICE = CAPACITY_PARAMS["device"]
_WHOLE: tuple[Home, ...] = ("streamed", "cpu")
"""What may become of whole layers under `auto` where MLPs alone do not fit in host memory."""


def place_weights(
    config: EngineConfig,
    sizes: WeightSizes,
    room: MemoryBudget,
    capacities: Capacities,
    page: KVPageSpec,
    wanted: int,
    times: PlacementTimes | None,
    use: ExpertUse | None = None,
    *,
    rates_known: bool = False,
) -> PlacedWeights:
    """Of the weights: the user's, or as many resident layers as fit beside the KV cache.

    Token embeddings leave the accelerator where that keeps more of the layers there: a step reads a
    row of them for each token, and of a layer all.

    Args:
        room: where the maths is done, with what others than weights and pages take of it.
        wanted: tokens of the longest request.
        times: by which placements are weighed against each other; None: rates are not known, or
            layers and MLPs are not to be weighed, and layers are then streamed, but of mixtures
            the CPU computes the experts.
        use: of experts, as measured; None: not known.
        rates_known: steps can choose whether what lies in host memory is streamed.

    Raises:
        ConfigError: they do not fit, or the file does not.
    """
    # who asks for MLPs apart has nothing else weighed against them
    weighed = times if config.host_layers == "auto" else None
    if config.placement is not None:
        return _placement_of_file(Path(config.placement), sizes, capacities)
    on_device = config.strategy == "gpu-only" or config.kv_placement == "device"
    whole = config.max_model_len is not None and (on_device or not capacities.host_bytes)
    reserve = kv_reserve(page, wanted, capacities, whole=whole)
    if capacities.device_location == "host":
        left = room.left_bytes - least_host_bytes(sizes)
        return PlacedWeights(choose_disk_placement(sizes, room, reserve.of(left)))
    if not capacities.host_bytes:
        return PlacedWeights(all_resident(sizes.layers))

    def place(sizes: WeightSizes) -> Placement:
        home = _home_elsewhere(config, weighed, sizes, rates_known=rates_known)
        is_free = config.host_layers == "auto"
        left = room.left_bytes - sizes.least_device_bytes(home)
        without_slots: dict[Home, Home] = {"host": "cpu", "host-mlp": "cpu-mlp"}
        if is_free:
            without_slots["streamed"] = "cpu"
        if home in without_slots and left < reserve.least_bytes:  # no room for layers on their way
            home = without_slots[home]
            left = room.left_bytes - sizes.least_device_bytes(home)
        kv = host_kv(config, page, wanted)
        host = MemoryBudget("host", capacities.host_bytes, {"embeddings": sizes.hosted_embedding})
        host.require()
        beside = _Beside(sizes, room, host, reserve.of(left), kv, rates_known=rates_known)
        if home in MLPS_APART:
            return beside.mlps_apart(use, times, is_free=is_free)
        return beside.whole_layers(home, weighed, is_free=is_free)

    return _with_embedding(sizes, place, weighed)


def _with_embedding(
    sizes: WeightSizes, place: Callable[[WeightSizes], Placement], times: PlacementTimes | None
) -> PlacedWeights:
    """Embeddings on the accelerator, unless more of the layers stay there without them.

    Raises:
        ShortOfMemoryError: nothing fits either way.
    """
    beside = _attempt(place, sizes)
    if beside == all_resident(sizes.layers) or not sizes.embedding:
        return PlacedWeights(_or_raise(beside))
    without = sizes.with_embedding("host")
    apart = _attempt(place, without)
    if isinstance(apart, ShortOfMemoryError):
        # what the accelerator lacks is told as it is without embeddings
        lacks = [isinstance(e, ShortOfMemoryError) and e.param == _DEVICE for e in (beside, apart)]
        return PlacedWeights(_or_raise(apart if all(lacks) else beside))
    if isinstance(beside, ShortOfMemoryError):
        return PlacedWeights(apart, "host")

    def cost(sizes: WeightSizes, placement: Placement) -> tuple[int, float]:
        moved = sizes.host_bytes(placement) if times is None else times.weighed_s2(placement)
        return sizes.disk_bytes(placement), moved

    better = cost(without, apart) < cost(sizes, beside)
    return PlacedWeights(apart, "host") if better else PlacedWeights(beside)


def _attempt(
    place: Callable[[WeightSizes], Placement], sizes: WeightSizes
) -> Placement | ShortOfMemoryError:
    try:
        return place(sizes)
    except ShortOfMemoryError as error:
        return error


def _or_raise(found: Placement | ShortOfMemoryError) -> Placement:
    if isinstance(found, ShortOfMemoryError):
        raise found
    return found


@dataclass(frozen=True, slots=True)
class _Beside:
    """Placements beside an accelerator.

    Attributes:
        room, host: memory of both tiers. kv_bytes: of KV on the accelerator; kv: on the host.
        rates_known: steps can choose whether what lies in host memory is streamed.
    """

    sizes: WeightSizes
    room: MemoryBudget
    host: MemoryBudget
    kv_bytes: int
    kv: HostKV
    rates_known: bool

    def mlps_apart(
        self, use: ExpertUse | None, times: PlacementTimes | None, *, is_free: bool
    ) -> Placement:
        """MLPs on the CPU or streamed; whole layers, if that is free and only they fit. Of
        mixtures, the experts that were counted most stay.

        Args:
            times: by which it is decided what becomes of the other experts.
        """
        mlps = self._mlps()
        if is_free and not mlps and (whole := self._fitting(_WHOLE)):
            return whole[0]
        mlps = mlps or [self._with(_ON_CPU)]  # tells what is short
        chosen = min(mlps, key=_read_layers)
        if chosen == all_resident(self.sizes.layers):
            return chosen
        split = self._split(use)
        if split and times is not None:
            return times.choose(*split)
        return [chosen, *split][-1]

    def whole_layers(self, home: Home, times: PlacementTimes | None, *, is_free: bool) -> Placement:
        """Layers at `home`, weighed against MLPs alone where there are times."""
        try:
            found = [self._with(home)]
        except ShortOfMemoryError:
            found = (self._mlps() or self._fitting(_WHOLE)) if is_free else []
            if not found:
                raise
            if times is None:
                return found[0]
            return self._or_split(found, times)
        if times is None or found == [all_resident(self.sizes.layers)]:
            return found[0]
        if home != "cpu" and times.disk_known and disk_layers(found[0]):
            # without slots, two more layers stay on the accelerator
            found += self._fitting(("cpu",))
        # without any if there is no room for the rest of every layer, or for MLPs in host memory
        mlps = self._mlps()
        return self._or_split([*found, *mlps], times) if mlps else times.choose(*found)

    def _or_split(self, found: list[Placement], times: PlacementTimes) -> Placement:
        """The best of those found, or with single experts on the accelerator, however little that
        gains: it gains little everywhere, and more where embeddings have left.
        """
        return times.choose(times.choose(*found), *self._split(times.use), least_gain=0.0)

    def _mlps(self) -> list[Placement]:
        return self._fitting(self._apart)

    @property
    def _apart(self) -> tuple[Home, ...]:
        return ("host-mlp", _ON_CPU) if self.rates_known else (_ON_CPU,)

    def _fitting(self, homes: tuple[Home, ...]) -> list[Placement]:
        found: list[Placement] = []
        for home in homes:
            with suppress(ShortOfMemoryError):
                found.append(self._with(home))
        return found

    def _with(self, home: Home) -> Placement:
        return choose_beside_accelerator(
            self.sizes, self.room, self.host, self.kv_bytes, self.kv, home
        )

    def _split(self, known: ExpertUse | None) -> list[Placement]:
        """Single experts of all mixtures on the accelerator, or of the fewest that are in host
        memory. The others are the CPU's, or, at last, come in large steps: so does less of each of
        all mixtures through smaller slots than of a few.
        """
        if known is None:
            return []
        every = [self.sizes.spread(self.sizes.movable, home) for home in reversed(self._apart)]
        bases = [*self._fitting((_ON_CPU,)), *every]
        found = split_placements(
            self.sizes, self.room, self.host, self.kv_bytes, self.kv, bases, known
        )
        return list(found)


def _read_layers(placement: Placement) -> int:
    """Number of layers that are read from disk."""
    return len(disk_layers(placement))


def _placement_of_file(path: Path, sizes: WeightSizes, capacities: Capacities) -> PlacedWeights:
    host_only = capacities.device_location == "host"
    placed = read_placement(path, sizes.layers, host_only=host_only)
    refuse_fixed(sizes, placed.layers)
    refuse_tied(sizes, placed.embedding)
    check_experts(sizes, placed.layers)
    on_disk = 0 if host_only else sizes.disk_bytes(placed.layers)
    hosted = sizes.host_bytes(placed.layers) or placed.embedding == "host"
    if (hosted or on_disk) and not capacities.host_bytes:
        raise ConfigError(
            "layers can be streamed to an accelerator, or computed on the CPU beside it, and "
            "embeddings be looked up, only from host memory; use --accelerator cuda or emulated, "
            "and --cpu-memory above 0",
            param="placement",
        )
    return placed


def _home_elsewhere(
    config: EngineConfig, times: PlacementTimes | None, sizes: WeightSizes, *, rates_known: bool
) -> Home:
    """Of layers that are not resident: what the user wants, or what each step is predicted to.

    Where no times are known, a token's few experts are read where they lie.
    """
    if config.host_layers == "mlp":
        return "host-mlp" if rates_known else "cpu-mlp"
    if config.host_layers == "cpu":
        return "cpu"
    if times is not None:
        return "host"
    return "cpu-mlp" if config.host_layers == "auto" and sizes.experts else "streamed"
