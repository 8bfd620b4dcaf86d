"""A model, a GPU and what is wanted, in; the plan out: what is chosen, engine arguments with reasons, or a refusal."""

from dataclasses import dataclass, replace

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.arguments import Argument, arguments
from lpxdoctor.sizing.cache import FP8
from lpxdoctor.sizing.card import Card
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.options import Option, Wish, options
from lpxdoctor.sizing.refusal import refusal, ways_out


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan.

    Attributes:
        model, card, wish: what it is for.
        options: one a precision, the checkpoint's own first.
        chosen: the option that all else is about.
        arguments: for the engine; none where it is refused.
        kv_tokens: (KV format, capacity in tokens) of the formats besides the chosen one that the GPU computes in.
        refusal: in numbers, why what is wanted does not fit; "" where it fits.
        ways_out: what would fit.
        notes: what was assumed, and what to know of it.
    """

    model: Model
    card: Card
    wish: Wish
    options: tuple[Option, ...]
    chosen: Option
    arguments: tuple[Argument, ...]
    kv_tokens: tuple[tuple[str, int], ...]
    refusal: str
    ways_out: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether what is wanted fits."""
        return not self.refusal


def plan(model: Model, card: Card, wanted: Wish) -> Plan:
    """Return the plan.

    Without a wanted precision it is the checkpoint's own; where that does not fit, FP8 if the GPU computes in it, since
    vLLM makes that of any checkpoint by itself.

    Raises:
        UsageError: for a KV format that cannot hold the model, or a precision that the GPU does not compute in.
    """
    choices = options(model, card, wanted)
    chosen = _choose(choices, card, wanted)
    refused = refusal(model, card, chosen)
    return Plan(
        model=model,
        card=card,
        wish=wanted,
        options=choices,
        chosen=chosen,
        arguments=() if refused else arguments(model, card, chosen),
        kv_tokens=() if refused else _kv_tokens(model, card, wanted, chosen),
        refusal=refused,
        ways_out=ways_out(model, card, choices, chosen) if refused else (),
        notes=(*model.notes, *_notes(card, wanted, choices[0], chosen)),
    )


def _choose(choices: tuple[Option, ...], card: Card, wanted: Wish) -> Option:
    if wanted.precision:
        found = next((option for option in choices if option.precision.name == wanted.precision), None)
        if found is None:
            names = ", ".join(option.precision.name for option in choices)
            raise UsageError(
                f"{card.name} computes in {', '.join(card.native) or 'no format that is known'}: weights in "
                f"{wanted.precision} gain nothing there. To choose from: {names}"
            )
        return found
    made = [option for option in choices if option.stored or not option.precision.checkpoint]
    return next((option for option in made if option.fits), choices[0])


def _kv_tokens(model: Model, card: Card, wanted: Wish, chosen: Option) -> tuple[tuple[str, int], ...]:
    """Return the capacity in the smaller KV formats that the GPU computes in; every one costs some accuracy."""
    found: list[tuple[str, int]] = []
    for form, native in (("fp8", "fp8"), ("nvfp4", "fp4")):
        if native not in card.native or wanted.kv_format in (*FP8, form):
            continue
        try:
            other = options(model, card, replace(wanted, kv_format=form, precision=None))
        except UsageError:  # the format cannot hold this model's attention
            continue
        same = next((option for option in other if option.precision == chosen.precision), None)
        if same:
            found.append((form, same.tokens))
    return tuple(found)


def _notes(card: Card, wanted: Wish, first: Option, chosen: Option) -> tuple[str, ...]:
    notes: list[str] = []
    if chosen is not first and not wanted.precision:
        name = chosen.precision.name
        notes.append(
            f"{first.precision.name} does not hold what is wanted, {name} does: compare its answers with 16 bit"
        )
    if chosen.precision.checkpoint and not chosen.stored:
        notes.append(
            f"{chosen.precision.name} is not made on loading: serve a checkpoint in {chosen.precision.checkpoint}"
        )
    scheme = chosen.precision.native
    if chosen.stored and scheme not in ("", "bf16", "fp16", *card.native) and card.native:
        notes.append(
            f"{card.name} does not compute in {chosen.precision.name}: the weights are unpacked to 16 bit, "
            "which saves memory and not time"
        )
    if not card.native:
        notes.append(f"compute capability {card.capability} is not in the table: what it computes in is not known")
    if card.bytes_per_s is None:
        notes.append("nothing tells this GPU's memory bandwidth: no ceiling")
    return tuple(notes)
