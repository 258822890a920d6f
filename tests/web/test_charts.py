"""Charts and figures of runs whose history is written here: scales, seeds, axes, marks, words."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from rookery.bus import Outgoing
from rookery.config.reading import build
from rookery.control.check import check_config
from rookery.messages import METRICS_TRAINING, LeagueMetrics, RunEnded, StopRun, encode_json
from tests.server.test_run_rows import training
from tests.web.axe import Axe
from tests.web.browsing import SHORT, enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

HOUR_S = 3600.0
Values = Mapping[str, Sequence[float]]
Tell = Callable[..., str]


@pytest.fixture(scope="module")
def tell(shared_cli: Any, served: Any) -> Tell:
    """Make a run that reported these values, one every 1,000 steps and every second."""
    home = shared_cli.home

    def made(
        run: str,
        values: Values,
        config: Mapping[str, Any] = SHORT,
        away_s: float = 0.0,
        **more: Any,
    ) -> str:
        config = build(dict(config))
        home.create(config, check_config(home, config), author="me", run=run)
        start = time.time() - 2 * HOUR_S
        count = len(next(iter(values.values())))
        told = [
            training(
                run=run,
                updates=i,
                env_steps=1000 * i,
                train_s=float(i),
                time_s=start + i + (away_s if i > count // 2 else 0.0),
                values={name: series[i] for name, series in values.items() if "_100" not in name},
                **{name: series[i] for name, series in values.items() if "_100" in name},
                **more,
            )
            for i in range(count)
        ]
        with contextlib.closing(home.open_run_bus(run, config)) as bus:
            bus.publish([Outgoing(METRICS_TRAINING, encode_json(each)) for each in told])
        return run

    return made


def chart(page: Page, metric: str) -> Locator:
    return page.locator(f'[data-metric="{metric}"]')


def drawn(found: Locator) -> tuple[float, float]:
    low, high = (found.get_attribute(f"data-{end}") for end in ("from", "to"))
    return float(low or 0), float(high or 0)


def read_at_end(page: Page, metric: str = "mean_return_100") -> str:
    """What the axis says a few pixels before the last point."""
    plot = chart(page, metric).locator(".plot")
    plot.focus()
    plot.press("ArrowLeft")
    return chart(page, metric).locator(".at").inner_text()


# --- scales --------------------------------------------------------------------------------------


def test_a_first_outlier_does_not_flatten_a_chart_and_a_curve_that_rose_is_whole(
    page: Page, served: Any, tell: Tell
) -> None:
    noise = [20.0 + i % 10 for i in range(200)]
    rose = [20.0, 120.0, 350.0, 480.0, *[496.0 + i % 5 for i in range(196)]]
    values = {"value_loss": [10_000.0, *noise[1:]], "mean_length_100": rose}
    returns = {
        f"{kind}_return_100": [-5000.0 - i, *noise[1:]] for i, kind in enumerate(("mean", "min"))
    }
    run = tell("outlier", {**values, **returns, "max_return_100": noise})
    enter(page, served, f"/runs/{run}")

    expect(chart(page, "value_loss")).to_contain_text("some points outside")
    assert drawn(chart(page, "value_loss"))[1] < 50
    expect(chart(page, "mean_return_100")).to_contain_text("some points outside")
    assert drawn(chart(page, "mean_return_100"))[0] > -50
    expect(chart(page, "mean_length_100").locator(".read")).to_have_text(re.compile(r"\d"))
    expect(chart(page, "mean_length_100")).not_to_contain_text("outside")
    assert drawn(chart(page, "mean_length_100"))[0] < 20


def test_the_scale_holds_the_longest_of_several_runs(page: Page, served: Any, tell: Tell) -> None:
    rising = [float(i) for i in range(60)]
    long = tell("long", {"mean_return_100": rising})
    short = tell("short", {"mean_return_100": rising[:12]})
    reads = chart(page, "mean_return_100").locator(".read")
    held: list[Route] = []
    enter(page, served)
    # a method of its own has no room for what the browser's library notes on it
    page.route(re.compile(f"/runs/{long}/metrics"), lambda found: held.append(found), times=1)  # noqa: PLW0108
    page.goto(f"{served.url}/#/compare?runs={short},{long}")
    expect(reads.first).to_contain_text("11")  # it is drawn before the other one has come
    held[0].continue_()

    expect(reads.last).to_contain_text("59")
    expect(chart(page, "mean_return_100")).not_to_contain_text("outside")
    assert drawn(chart(page, "mean_return_100"))[1] > 59


def test_before_the_first_update_a_chart_says_so_and_one_point_is_a_dot(
    page: Page, served: Any, tell: Tell
) -> None:
    run = tell("young", {"value_loss": [3.0]}, mean_return_100=None)
    enter(page, served, f"/runs/{run}")
    expect(chart(page, "value_loss").locator(".read")).to_have_text("3")
    expect(chart(page, "mean_return_100")).to_contain_text("no points yet")
    expect(chart(page, "value_loss")).not_to_contain_text("no points yet")


# --- several runs --------------------------------------------------------------------------------


def dot(found: Locator) -> str:
    colour = found.locator("i").first.evaluate("dot => getComputedStyle(dot).backgroundColor")
    assert isinstance(colour, str)
    return colour


def test_seeds_are_one_line_with_a_name_a_colour_and_their_mean(
    page: Page, served: Any, tell: Tell
) -> None:
    seeds = [
        tell(
            f"seed-{seed}",
            {"mean_return_100": [float(seed)] * (20 + seed // 2)},  # they end an update apart
            {**SHORT, "seed": seed, "stop": {"steps": 1000 * seed}},
        )
        for seed in (1, 2, 3)
    ]
    other = tell("other", {"mean_return_100": [9.0] * 20}, {**SHORT, "algorithm": {"gamma": 0.5}})
    enter(page, served, f"/compare?runs={','.join([*seeds, other])}")

    legend = page.get_by_role("list", name="Runs on the charts").get_by_role("listitem")
    expect(legend).to_have_text(["seed-1 (3 seeds)", "other"])
    reads = chart(page, "mean_return_100").locator(".read")
    expect(reads).to_have_text([re.compile(r"\(3 seeds\)\s*2$"), re.compile(r"other\s*9$")])
    colours = [dot(page.locator("tbody tr").filter(has_text=run)) for run in (*seeds, other)]
    assert colours == [dot(legend.first)] * 3 + [dot(legend.last)]
    assert dot(legend.first) != dot(legend.last)
    for read in reads.all():  # nothing lies upon the plot
        assert bottom(read) <= top(chart(page, "mean_return_100").locator(".plot"))


def top(found: Locator) -> float:
    box = found.bounding_box()
    assert box is not None
    return box["y"]


def bottom(found: Locator) -> float:
    box = found.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def test_eight_names_with_their_values_stand_above_their_chart(
    page: Page, served: Any, tell: Tell
) -> None:
    runs = [tell(f"eight-{i}", {"mean_return_100": [0.123 * i] * 9}) for i in range(8)]
    enter(page, served, f"/compare?runs={','.join(runs)}")
    reads = chart(page, "mean_length_100").locator(".read")
    expect(reads).to_have_count(8)
    lowest = max(bottom(read) for read in reads.all())
    assert lowest <= top(chart(page, "mean_length_100").locator(".plot"))


# --- axes ----------------------------------------------------------------------------------------


def test_the_axis_is_of_steps_of_training_time_or_of_the_clock(
    page: Page, served: Any, tell: Tell
) -> None:
    rising = {"mean_return_100": [float(i) for i in range(40)]}
    run, other = tell("away", rising, away_s=HOUR_S), tell("stayed", rising)
    enter(page, served, f"/compare?runs={run},{other}")
    expect(chart(page, "mean_return_100").locator(".read").last).to_contain_text("39")
    axis = page.get_by_role("group", name="X axis")
    assert re.match(r"3\d(\.\d)?k steps", read_at_end(page))
    axis.get_by_role("button", name="Time").click()
    assert re.match(r"3\d s", read_at_end(page))  # the hour away does not count
    axis.get_by_role("button", name="Clock").click()
    assert re.match(r"(\S+ )?\d\d:\d\d:\d\d", read_at_end(page))


# --- what is said of a run -----------------------------------------------------------------------


def changed(page: Page, path: str, **values: Any) -> None:
    """The server's answer, with other values in it."""

    def answer(route: Route) -> None:
        found = route.fetch()
        route.fulfill(response=found, json={**found.json(), **values})

    page.route(re.compile(f"/api/v1/runs/{path}$"), answer)


def test_a_run_that_failed_is_not_marked_as_stopped(
    page: Page, served: Any, tell: Tell, shared_cli: Any
) -> None:
    run = tell("broken", {"mean_return_100": [1.0, 2.0, 3.0]})
    shared_cli.home.record(
        RunEnded(run=run, status="failed", reason="boom"),
        RunEnded(run=run, status="stopped", reason="asked to stop"),  # what its learner says then
    )
    enter(page, served, f"/runs/{run}")
    marks = page.get_by_role("list", name="Marks").first.get_by_role("listitem")
    expect(marks).to_have_text(["failed"])
    shared_cli.home.send(StopRun(run=run, author="me"))
    expect(marks).to_have_text(["failed", "stopped"])  # by somebody


def test_figures_say_what_they_mean(page: Page, served: Any, tell: Tell) -> None:
    run = tell("figures", {"mean_return_100": [1.0, 2.0, 3.0]})
    enter(page, served, f"/runs/{run}")
    expect(page.get_by_title(re.compile("how many updates the weights have had"))).to_be_visible()
    lag = page.get_by_title(re.compile("how many updates old the weights were"))
    expect(lag).to_have_text([re.compile("Policy lag"), "Policy lag"])  # the chart's too
    expect(page.get_by_title(re.compile("where every step"))).to_have_text("Step balance")
    expect(page.locator(".head .status")).to_have_attribute("title", "made, and never started")


def test_a_run_that_waits_is_queued_and_one_that_was_left_can_go_on(
    page: Page, served: Any, tell: Tell
) -> None:
    run = tell("waits", {"mean_return_100": [1.0, 2.0]})
    enter(page, served)
    changed(page, f"{run}/why", component="learner-0", summary="learner-0 is being started")
    changed(page, run, status="running", desired="running", queue_position=1)
    page.goto(f"{served.url}/#/runs/{run}")
    expect(page.locator(".head .status")).to_have_text("queued")
    expect(page.locator("aside.why")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")
    changed(page, run, status="interrupted", desired="running")
    page.reload()
    expect(page.locator(".head .status")).to_have_text("interrupted")
    expect(page.get_by_role("button", name="Go on")).to_be_enabled()
    expect(page.get_by_role("button", name="Checkpoint")).to_be_disabled()


# --- a league ------------------------------------------------------------------------------------

PLAYERS = [*(f"main@{10 * i}" for i in range(30)), "script:random"]


def ladder(route: Route) -> None:
    rated = {"uncertainty": 2.0, "games": 9, "wins": 3, "draws": 3, "losses": 3}
    rows = [
        {"player": name, "rank": i + 1, "mu": 25.0 + i, "low": 23.0 + i, "high": 27.0 + i, **rated}
        for i, name in enumerate(PLAYERS)
    ]
    met = {"games": 4, "wins": 1, "draws": 0, "losses": 3}
    records = [[None if a == b else met for b in PLAYERS] for a in PLAYERS]
    payoff = {"players": PLAYERS, "records": records}
    route.fulfill(body=json.dumps({"players": rows, "payoff": payoff}))


def test_a_league_keeps_its_width_and_its_payoff_matrix_scrolls(
    page: Page, served: Any, tell: Tell
) -> None:
    rating = LeagueMetrics(
        snapshots=31, rated_games=9, newest="main@290", rating=30.0, uncertainty=1.0, points={}
    )
    run = tell("league", {"mean_return_100": [0.0] * 9}, league=rating)
    enter(page, served)
    page.route(re.compile(f"/runs/{run}/ladder"), ladder)
    page.goto(f"{served.url}/#/runs/{run}")
    first = page.locator(".charts [data-metric]").first
    expect(first).to_have_attribute("data-metric", "league.rating")  # before its return
    page.goto(f"{served.url}/#/runs/{run}/league")
    expect(chart(page, "league.rating")).to_be_visible()
    parts = [
        page.get_by_role("region", name="Rating of each snapshot"),
        page.get_by_role("region", name="Payoff", exact=True),
        chart(page, "league.rating"),
    ]
    boxes = [part.bounding_box() for part in parts]
    assert len({(box["x"], box["width"]) for box in boxes if box}) == 1
    matrix = page.get_by_role("region", name="Payoff matrix")
    assert matrix.evaluate("box => box.scrollWidth > box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    checker = Axe(page)
    checker.look("a league")
    assert not checker.wrong, "\n".join(checker.wrong)
