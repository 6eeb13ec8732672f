"""The order of several offers, its confidence and its sensitivities, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.apps.buy.purchase import CONDITIONS, Figures, Offer, Option, Request, UnfitOption, offers
from clustersim.apps.plan.asking import NO_PRICES, no_price_of
from clustersim.apps.plan.goal import adapted_line
from clustersim.apps.plan.layout_table import memory_cell
from clustersim.apps.run.intervals import ABOVE_PUBLISHED
from clustersim.apps.run.page import image_of
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.text import Data
from clustersim.measure.deciding import Judged, undecided, undecided_ratios, undecided_text
from clustersim.measure.error_bars import with_ends
from clustersim.report.page.content import Image, Page, PageSection, render
from clustersim.report.plots.offers import OfferBar, draw_offers
from clustersim.report.plots.write import write_drawn
from clustersim.report.text_tables import TextAnswer, TextTable
from clustersim.units.divisors import listed
from clustersim.units.quantity import format_quantity, format_range

if TYPE_CHECKING:
    from clustersim.report.plots.canvas import Axes

DAY_S: Final = 86400.0
DAYS_WITHOUT_DIGITS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenRent:
    """The rent at which another option costs as much as the best."""

    name: str
    against: str
    """The cheapest option that has a price."""
    usd_per_gpu_hour: float
    now_usd_per_gpu_hour: float | None
    """None without a price."""
    undecided_usd_per_gpu_hour: tuple[float, float] | None
    """Between these the error bars do not tell which one costs less; None without error bars."""

    @property
    def text(self) -> str:
        """Sentence on the rent, with the present one."""
        now, span = self.now_usd_per_gpu_hour, self.undecided_usd_per_gpu_hour
        shown = "no price" if now is None else f"{now:.2f} now"
        if self.usd_per_gpu_hour <= 0.0:
            return f"{self.name} is dearer even without a rent"
        between = "" if span is None else f", not decided from {max(span[0], 0.0):.2f} to {span[1]:.2f}"
        return f"{self.name} costs as much as {self.against} at {self.usd_per_gpu_hour:.2f} USD a GPU hour ({shown}{between})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(TextAnswer):
    """All offers, and what follows from them."""

    request: Request
    found: tuple[Offer, ...]
    missed: tuple[UnfitOption, ...]

    @property
    def by_cost(self) -> bool:
        """Whether offers are ordered by cost: every one of them has a price. Otherwise the order is that of time."""
        return all(each.figures.usd is not None for each in self.found)

    @property
    def ranked(self) -> tuple[Offer, ...]:
        """Offers, the cheapest first, or the fastest where not all have a price."""
        return tuple(sorted(self.found, key=lambda each: (self.number(each.figures), each.figures.time_s)))

    @property
    def best(self) -> Offer | None:
        """The first of them."""
        return self.ranked[0] if self.found else None

    @property
    def of_options(self) -> tuple[Offer, ...]:
        """The best offer of each option, in order."""
        firsts: dict[Option, Offer] = {}
        for each in self.ranked:
            firsts.setdefault(each.option, each)
        return tuple(firsts.values())

    @property
    def undecided(self) -> list[str]:
        """Options within the error bars of the best."""
        offers = self.of_options
        return [offers[place].option.name for place in undecided([_judged(each, self.number(each.figures)) for each in offers])]

    def number(self, figures: Figures) -> float:
        """Return what offers are ordered by."""
        return figures.usd if self.by_cost and figures.usd is not None else figures.time_s

    def break_evens(self) -> tuple[BreakEvenRent, ...]:
        """Return the rents at which other options cost as much as the best one with a price.

        The cost of an option is linear in its rent: :math:`h p + e`, with GPU hours :math:`h` and energy :math:`e`. It is that of the best,
        :math:`C`, at :math:`p = (C - e) / h`.
        """
        priced = [(each.figures.usd, each) for each in self.of_options if each.figures.usd is not None]
        lowest_usd, best = min(priced, key=lambda pair: pair[0], default=(0.0, None))
        if best is None:
            return ()
        found: list[BreakEvenRent] = []
        for each in self.of_options:
            hours = each.figures.gpu_hours
            if each is not best and hours is not None:
                bars, other_usd = [offer.winner.result.metrics.error_bar for offer in (each, best)], each.figures.other_usd or 0.0
                ratios = () if bars[0] is None or bars[1] is None else undecided_ratios(bars[0], bars[1])
                price, *ends = ((ratio * lowest_usd - other_usd) / hours for ratio in (1.0, *ratios))
                found.append(
                    BreakEvenRent(
                        name=each.option.name,
                        against=best.option.name,
                        usd_per_gpu_hour=price,
                        now_usd_per_gpu_hour=each.figures.usd_per_gpu_hour,
                        undecided_usd_per_gpu_hour=(ends[0], ends[1]) if ends else None,
                    )
                )
        return tuple(found)

    def best_under(self, condition: str) -> str | None:
        """Return the best option under another condition; None where an offer does not run under it."""
        offers = self.of_options
        if any(condition not in each.others for each in offers):
            return None
        return min(offers, key=lambda each: self.number(each.others[condition])).option.name

    def best_of_nics(self) -> dict[str, str]:
        """Return the best option with each bandwidth of adapters, as far as all run with it."""
        n_options = len(self.of_options)
        found: dict[str, str] = {}
        for nic in self.request.nics:
            with_it = [each for each in self.ranked if each.nic == nic]
            if len(with_it) == n_options:
                found[nic] = with_it[0].option.name
        return found

    def headline(self) -> str:
        """Return whether it is decided which option is best."""
        best = self.best
        if best is None:
            return "none: the model runs on none of these clusters in any layout"
        if len(self.of_options) == 1:
            return f"Only {best.option.name} runs the model"
        if not self.undecided:
            return f"Decided: {best.option.name}, and the error bars do not change that"
        return f"Not decided which is {self._what}: {listed([best.option.name, *self.undecided])}, within the error bars"

    def lines(self) -> Sequence[str]:
        """Return days and cost of the best, and its layout."""
        best = self.best
        if best is None:
            return ()
        first = f"{best.name}, first by {'cost' if self.by_cost else 'time'}" if self.undecided else f"{best.name} is {self._what}"
        layout = f"{best.winner.layout.words()}; {100 * best.winner.result.metrics.mfu:.1f} % MFU"
        return (f"{first}: {_with_cost(best)}{self._fastest()}", f"Layout: {layout}")

    @property
    def _what(self) -> str:
        return "cheapest" if self.by_cost else "fastest"

    def _fastest(self) -> str:
        fastest = min(self.found, key=lambda each: each.figures.time_s)
        if not self.by_cost or fastest.option == self.ranked[0].option:
            return ""
        offers = [fastest, *(each for each in self.of_options if each.option != fastest.option)]
        near = undecided_text([offers[place].option.name for place in undecided([_judged(each, each.figures.time_s) for each in offers])])
        return f"; the fastest is {fastest.name}: {_time(fastest)}{near and f', {near}'}"

    def turns(self) -> list[str]:
        """Return what another option is best at: its rent, the adapters, the batch, failures."""
        best = self.of_options[0].option.name
        found = [each.text for each in self.break_evens()]
        bests = {f"adapters of {nic}": name for nic, name in self.best_of_nics().items()}
        bests |= {name: under for name in CONDITIONS if (under := self.best_under(name))}
        found += [f"{name}: {under} is best" for name, under in bests.items() if under != best]
        same = [name for name, under in bests.items() if under == best]
        if same and len(self.of_options) > 1:
            found.append(f"not on {listed(same)}")
        return found or ["nothing, there is no other option"]

    def _worth_of_nics(self) -> list[str]:
        """Return the rent that faster adapters of the best option are worth, since every bandwidth has the same."""
        of_best = [each for each in self.ranked if each.option == self.ranked[0].option]
        first, last = of_best[0], of_best[-1]
        if len(of_best) == 1 or first.figures.usd is None or last.figures.usd is None or not first.figures.gpu_hours:
            return []
        worth = (last.figures.usd - first.figures.usd) / first.figures.gpu_hours
        more = f"a GPU hour with {first.nic} is worth {worth:.2f} USD more than with {last.nic}" if worth >= 0.005 else "none is better"
        return [f"rents are the same for all adapters: on {first.option.name} {more}"]

    def notes(self) -> Sequence[str]:
        """Return all that is said of the offers beside their figures."""
        return [*self.assumed(), *self.cautions()]

    def cautions(self) -> list[str]:
        """Return unknown prices, options that run in no layout, another batch, nearly full memory, and predictions above all published."""
        names = ", ".join(dict.fromkeys(each.asked.unpriced for each in self.of_options if each.asked.unpriced))
        lines = [no_price_of(names)] if names else []
        lines += dict.fromkeys(line for each in self.of_options for line in each.asked.told_of([each.winner.layout]).remarks)
        lines += [f"{each.option.name}: {each.choice}" for each in self.of_options if each.choice]
        lines += [
            adapted_line(each.option.name, each.asked_batch, each.asked)
            for each in self.of_options
            if each.asked.space.batch != each.asked_batch
        ]
        lines += [f"{each.option.name}: {flag.message}" for each in self.of_options for flag in each.flags if flag.code == ABOVE_PUBLISHED]
        lines += dict.fromkeys(flag.message for each in self.of_options for flag in each.flags if flag.code == "memory_tight")
        return [*lines, *(f"{each.name}: {each.why}" for each in self.missed)]

    def assumed(self) -> list[str]:
        """Return what faster adapters are worth, sources of prices, and assumptions."""
        lines = self._worth_of_nics() if self.found else []
        lists = dict.fromkeys(name for each in self.found for name in each.price_lists)
        lines += [f"prices: {', '.join(lists)} (clustersim show prices)"] if lists else []
        some: dict[str, dict[str, None]] = {}
        for each in self.found:
            for line in each.asked.assumed:
                if not line.startswith(NO_PRICES):
                    some.setdefault(line, {})[each.option.name] = None
        common = {line for line, names in some.items() if len(names) == len(self.of_options)}
        lines += [f"{', '.join(names)}: {line}" for line, names in some.items() if line not in common]
        lines += [f"assumed: {line}" for line in some if line in common]
        lines += [f"{each.option.name}: no failures are counted, {each.no_failures}" for each in self.of_options if each.no_failures]
        codes = ("single_source_price", "assumed_failure_rate")
        return [*lines, *dict.fromkeys(flag.message for each in self.of_options for flag in each.flags if flag.code in codes)]

    def tables(self) -> Sequence[TextTable]:
        """Return on what the order turns, a row for each offer, the best first, and their layouts."""
        if not self.found:
            return ()
        columns = ("option", ">days", ">interval", ">cost", ">interval", ">USD/GPU h", ">MFU")
        layouts: list[str] = []
        rows: list[tuple[str, ...]] = []
        for each in self.ranked:
            metrics, price = each.winner.result.metrics, each.figures.usd_per_gpu_hour
            least, most = interval(each)
            usd, days = each.figures.usd, each.figures.time_s / DAY_S
            rows.append(
                (
                    each.name,
                    _days(days),
                    f"{_days(least * days)} to {_days(most * days)}",
                    "no price" if usd is None else format_quantity(usd, "USD"),
                    "" if usd is None else format_range(least * usd, most * usd, "USD", as_of=usd),
                    "-" if price is None else f"{price:.2f}",
                    f"{100 * metrics.mfu:.1f} %",
                )
            )
            step = f"{each.asked.space.batch:,} sequences a step, {metrics.tokens_per_s:,.0f} tokens/s"
            layouts.append(f"  {each.name}: {each.winner.layout.words()}; {step}; {memory_cell(metrics.memory)}")
        return (
            TextTable("The order turns on", sentences=tuple(f"  {turn}" for turn in self.turns())),
            TextTable("All offers", columns, tuple(rows)),
            TextTable("Layouts", sentences=tuple(layouts)),
        )

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``buy --json`` prints."""
        best = self.best
        return {
            "schema_version": 1,
            "answer": [self.headline(), *self.lines(), *self.turns()] if self.found else [self.headline()],
            "tokens": self.request.tokens,
            "ordered_by": "cost" if self.by_cost else "time",
            "best": None if best is None else best.name,
            "undecided": list[Data](self.undecided) if self.found else [],
            "offers": [_offer_data(each) for each in self.ranked],
            "missed": [{"name": each.name, "why": each.why} for each in self.missed],
            "break_even": [plain(each) for each in self.break_evens()],
            "best_under": {name: self.best_under(name) for name in CONDITIONS} if self.found else {},
            "best_of_nics": dict[str, Data](self.best_of_nics()),
            "notes": list[Data](self.notes()),
        }


def answered(request: Request) -> Answer:
    """Return the best layout of every option and their order."""
    found, missed = offers(request)
    return Answer(request=request, found=tuple(found), missed=tuple(missed))


def _judged(offer: Offer, number: float) -> Judged | None:
    """Return an offer for a comparison by its time or cost; None without an error bar."""
    bar = offer.winner.result.metrics.error_bar
    return None if bar is None else Judged(at=lambda fraction: fraction * number, bar=bar)


def interval(offer: Offer) -> tuple[float, float]:
    """Return the least and the most of what was predicted that time and cost are expected at."""
    bar = offer.winner.result.metrics.error_bar
    return (1.0, 1.0) if bar is None else (bar.least_fraction, bar.most_fraction)


def _days(days: float) -> str:
    return f"{days:,.0f}" if days >= DAYS_WITHOUT_DIGITS else f"{days:.1f}"


def _time(offer: Offer) -> str:
    return with_ends(offer.figures.time_s, "s", offer.winner.result.metrics.error_bar)


def _with_cost(offer: Offer) -> str:
    """Return time and cost of an offer, with their intervals."""
    usd = offer.figures.usd
    return f"{_time(offer)}, {'no price' if usd is None else with_ends(usd, 'USD', offer.winner.result.metrics.error_bar)}"


def _offer_data(each: Offer) -> Data:
    metrics = each.winner.result.metrics
    least, most = interval(each)
    return {
        "option": each.option.name,
        "nic": each.nic,
        "gpus": each.asked.space.n_ranks,
        "global_batch_size": each.asked.space.batch,
        "asked_global_batch_size": each.asked_batch,
        "layout": each.winner.layout.words(),
        "choice": each.choice or None,
        "step_time_s": metrics.step_time_s,
        "mfu": metrics.mfu,
        "memory_fraction": metrics.memory.peak_bytes / metrics.memory.capacity_bytes,
        "memory_verdict": metrics.memory.verdict,
        "goodput_fraction": each.goodput_fraction,
        **asdict(each.figures),
        "interval_fraction": [least, most],
        "others": {name: asdict(value) for name, value in each.others.items()},
        "price_lists": list[Data](each.price_lists),
        "flags": plain(each.flags),
        "scenario": dict(each.scenario),
    }


def write_offers(answer: Answer, path: Path) -> None:
    """Write days and cost of all offers, with their intervals, as a PNG or SVG file."""
    write_drawn(lambda: _drawn(answer), path, "--plot")


def offers_page(answer: Answer) -> str:
    """Return the answer as one HTML file: four lines, a picture, a table, what was assumed, and the best layout as a scenario."""
    from clustersim.report.plots.canvas import style

    with style():
        image: Image = image_of(_drawn(answer), svg=True)
    sections = [
        PageSection(name="answer", heading="Answer", lines=tuple(answer.lines()), images=(image,)),
        *(
            PageSection(name=each.heading.lower().replace(" ", "-"), heading=each.heading, lines=each.sentences, tables=(each,))
            for each in answer.tables()
        ),
        PageSection(name="assumed", heading="Prices, and what was assumed", lines=tuple(answer.notes())),
    ]
    if answer.best is not None:
        text = yaml_text(dict(answer.best.scenario))
        sections.append(PageSection(name="scenario", heading="The best layout as a scenario", text=text, text_name="best.yaml"))
    return render(Page(title=f"{answer.request.model}: which cluster?", finding=answer.headline(), sections=tuple(sections)))


def _drawn(answer: Answer) -> Axes:
    bars = list[OfferBar]()
    for each in answer.ranked:
        least, most = interval(each)
        days = each.figures.time_s / DAY_S
        bars.append(OfferBar(name=each.name, days=days, usd=each.figures.usd, least_fraction=least, most_fraction=most))
    return draw_offers(answer.headline(), answer.lines()[0], bars)
