"""Which layers stay on the accelerator, and where the others are. Pure.

Memory first: as many layers are resident as leave room for the KV cache of one request; a planner
will weigh them against each other by time.
"""

from dataclasses import dataclass, replace

from tandem.memory.budget import MemoryBudget
from tandem.plan.disk_slots import direct_slots_bytes, slots_bytes
from tandem.plan.weights import (
    HOSTED,
    MLPS_APART,
    SLOTTED,
    EmbeddingHome,
    Home,
    WeightPlacement,
    as_runs,
    disk_layers,
    homes_by_layer,
    resident_experts,
    stream_slots,
    streamed_layers,
)
from tandem.spec.errors import ConfigError, ShortOfMemoryError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import (
    expert_matrix_bytes,
    layer_matrix_bytes,
    layers_matrix_parameters,
    lookup_parameters,
    mlp_matrix_bytes,
    num_parameters,
)
from tandem.spec.precision import Precision


@dataclass(frozen=True, slots=True)
class WeightSizes:
    """Bytes of a model's weights.

    Attributes:
        layer: of one layer's linear maps. layers: their number. mlp: of `layer`, the MLP's or the
            experts'.
        outside: of embeddings and head, all norms and biases, and fixed layers: resident in any
            case.
        fixed: layers of another size than the others: those without experts in a model with some.
        experts: of a layer; 0 in a model without. router, expert: of `mlp`, the router and one
            expert.
        embedding: of `outside`, token embeddings that may lie in host memory; 0 if they are the
            head as well. hosted_embedding: those that do, which are not `outside` then.
        direct: layers on disk are read into slots on the accelerator, not in host memory.
    """

    layer: int
    layers: int
    outside: int
    fixed: tuple[int, ...] = ()
    mlp: int = 0
    experts: int = 0
    router: int = 0
    expert: int = 0
    embedding: int = 0
    hosted_embedding: int = 0
    direct: bool = False

    @staticmethod
    def of(spec: ModelSpec, precision: Precision) -> "WeightSizes":
        """From the model's facts."""
        fixed = () if spec.experts is None else spec.experts.dense_layers
        movable = [i for i in range(spec.num_layers) if i not in fixed]
        in_maps = layers_matrix_parameters(spec)
        outside = (num_parameters(spec) - in_maps) * precision.weights.size_bytes
        outside += sum(layer_matrix_bytes(spec, precision, i) for i in fixed)
        layer = layer_matrix_bytes(spec, precision, movable[0])
        mlp = mlp_matrix_bytes(spec, precision, movable[0])
        rows = lookup_parameters(spec) * precision.weights.size_bytes
        plain = WeightSizes(layer, spec.num_layers, outside, fixed, mlp, embedding=rows)
        if spec.experts is None:
            return plain
        count, expert = spec.experts.count, expert_matrix_bytes(spec, precision, movable[0])
        return replace(plain, experts=count, router=mlp - count * expert, expert=expert)

    def with_embedding(self, home: EmbeddingHome) -> "WeightSizes":
        """With token embeddings there, unless they are the head as well."""
        if home == "resident":
            return self
        return replace(
            self,
            outside=self.outside - self.embedding,
            embedding=0,
            hosted_embedding=self.embedding,
        )

    @property
    def movable(self) -> int:
        """Number of layers that may be streamed."""
        return self.layers - len(self.fixed)

    def moved(self, home: Home) -> int:
        """Bytes of a layer that such a home takes away from where attention is."""
        return self.mlp if home in MLPS_APART else self.layer

    def spread(self, count: int, home: Home, on_disk: int = 0) -> tuple[WeightPlacement, ...]:
        """That many layers elsewhere, evenly, so that one comes while resident ones compute.

        Args:
            on_disk: of them, those that are read from disk, spread evenly likewise; who would
                compute them in host memory does so all the same.
        """
        from_disk: Home = "disk-cpu" if home == "cpu" else "disk_streamed"
        elsewhere = iter(_evenly(count, self.movable))
        read = iter(_evenly(on_disk, count))

        def home_of(layer: int) -> Home:
            if layer in self.fixed or not next(elsewhere):
                return "resident"
            return from_disk if next(read) else home

        return as_runs(home_of(layer) for layer in range(self.layers))

    def device_bytes(self, placements: tuple[WeightPlacement, ...]) -> int:
        """What a placement takes where the maths is done: resident layers and slots of streamed."""
        there = (self.movable - self.elsewhere(placements)) * self.layer
        slots = self.slots_bytes(placements) + self.direct_slots_bytes(placements)
        return self.outside + there + slots - self.mlps_bytes(placements)

    @property
    def disk_slots(self) -> int:
        """Host memory that layers on disk go through, if there are any."""
        return 0 if self.direct else slots_bytes(self.layer)

    def direct_slots_bytes(self, placements: tuple[WeightPlacement, ...]) -> int:
        """Of the accelerator's memory, what they are read into there."""
        return direct_slots_bytes(self.layer) if self.direct and disk_layers(placements) else 0

    def slots_bytes(self, placements: tuple[WeightPlacement, ...]) -> int:
        """Of the accelerator's slots, which are as large as the largest of what comes: whole
        layers, MLPs, or what is left of mixtures without experts that are resident.
        """
        streamed = streamed_layers(placements)
        if streamed.layers != streamed.mlps:
            return streamed.slots * self.layer
        here = resident_experts(placements)
        coming = (self.mlp - self._kept(here.get(layer, ())) for layer in streamed.mlps)
        return streamed.slots * max(coming, default=0)

    def _kept(self, experts: tuple[int, ...]) -> int:
        """Of an MLP in host memory, what the accelerator has: these experts, and a router."""
        return self.router + len(experts) * self.expert if experts else 0

    def host_bytes(self, placements: tuple[WeightPlacement, ...]) -> int:
        """What a placement keeps of layers in the host's memory beside an accelerator; embeddings
        that lie there come on top.
        """
        homes = homes_by_layer(placements).values()
        whole = sum(home in HOSTED for home in homes)
        return whole * self.layer + self.mlps_bytes(placements)

    def mlps_bytes(self, placements: tuple[WeightPlacement, ...]) -> int:
        """Of MLPs that are elsewhere, but for experts and routers that are not."""
        kept = sum(map(self._kept, resident_experts(placements).values()))
        return self.mlps(placements) * self.mlp - kept

    @staticmethod
    def mlps(placements: tuple[WeightPlacement, ...]) -> int:
        """Number of layers whose MLPs alone are elsewhere, or some of their experts."""
        return sum(home in MLPS_APART for home in homes_by_layer(placements).values())

    @staticmethod
    def elsewhere(placements: tuple[WeightPlacement, ...]) -> int:
        """Number of layers none of which is resident."""
        homes = homes_by_layer(placements).values()
        return sum(home not in ("resident", *MLPS_APART) for home in homes)

    def least_device_bytes(self, home: Home) -> int:
        """What weights take where the maths is done with as few layers resident as can be."""
        slots = stream_slots(self.movable) if home in SLOTTED else 0
        moved = self.moved(home)
        return self.outside + self.movable * (self.layer - moved) + slots * moved

    def disk_bytes(self, placements: tuple[WeightPlacement, ...]) -> int:
        """What a placement reads from disk in every sweep."""
        return len(disk_layers(placements)) * self.layer


def _evenly(count: int, places: int) -> list[bool]:
    """Which of the places are taken."""
    return [(i + 1) * count // places > i * count // places for i in range(places)]


def all_resident(num_layers: int) -> tuple[WeightPlacement, ...]:
    """Every layer where the maths is done."""
    return (WeightPlacement(0, num_layers - 1),)


def choose_placement(
    sizes: WeightSizes, device: MemoryBudget, kv_bytes: int, home: Home = "streamed"
) -> tuple[WeightPlacement, ...]:
    """As many resident layers as fit; the others get `home`, spread evenly among them.

    With home `cpu-mlp` or `host-mlp` all that is of attention is resident, and as many MLPs as fit.

    Args:
        device: capacity, and what others than weights and the KV cache take of it.
        kv_bytes: of the accelerator's memory, to be left to the KV cache.

    Raises:
        ShortOfMemoryError: not even with no resident layer would it fit.
    """
    left = device.left_bytes - kv_bytes - sizes.outside
    if left >= sizes.movable * sizes.layer:
        return all_resident(sizes.layers)
    slots = stream_slots(sizes.movable) if home in SLOTTED else 0
    over = sizes.movable * sizes.layer - left
    hosted = -(-over // sizes.moved(home)) + slots
    if hosted > sizes.movable:
        raise _too_small(sizes, device, kv_bytes, home)
    return sizes.spread(hosted, home)


def refuse_fixed(sizes: WeightSizes, placements: tuple[WeightPlacement, ...]) -> None:
    """Layers that are not resident take turns in the same memory, so they must be of one size.

    Raises:
        ConfigError: another one is not resident.
    """
    homes = homes_by_layer(placements)
    for layer in sizes.fixed:
        if homes[layer] != "resident":
            raise ConfigError(
                f"layer {layer} has no experts and is smaller than the layers that have some; "
                "it must be resident",
                param="placement",
            )


def refuse_tied(sizes: WeightSizes, embedding: EmbeddingHome) -> None:
    """A head is read whole in every step, so it stays where the maths is done.

    Raises:
        ConfigError: embeddings that are the head as well are to lie in host memory.
    """
    if embedding == "host" and not sizes.embedding:
        raise ConfigError(
            "the model's embeddings are its output head, too, which the accelerator reads whole in "
            "every step; they stay there: leave 'embedding' out",
            param="placement",
        )


def _too_small(
    sizes: WeightSizes, device: MemoryBudget, kv_bytes: int, home: Home
) -> ShortOfMemoryError:
    what = "layers without their MLPs" if home in MLPS_APART else "layers on their way"
    needed = {
        "embeddings, head and norms": sizes.outside,
        what: sizes.least_device_bytes(home) - sizes.outside,
        "KV cache": kv_bytes,
    }
    return device.shortage(" even with as many layers as possible in host memory", needed)
