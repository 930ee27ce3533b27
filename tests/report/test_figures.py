"""What the figures show, in numbers; that they are drawn, `test_build.py` says."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sbtrpo.report import figures, histograms, paper, planes
from sbtrpo.report.canvas import PNG_DPI, files, line_style, line_styles, literal
from sbtrpo.report.runs import Variant, read_runs
from sbtrpo.report.style import LOOKS, Look, look
from sbtrpo.report.tables import Missing
from tests.report import samples

GOAL, CIRCLE, BUTTON = "SafetyPointGoal2-v0", "SafetyCarCircle2-v0", "SafetyPointButton2-v0"
HOPPER = "SafetyHopperVelocity-v1"


def test_variants_of_one_method_go_from_pale_to_its_colour() -> None:
    sizes = [Variant("cpo", (("num_envs", worlds),)) for worlds in (40, 400)]
    styles = line_styles([Variant("sb-trpo"), *sizes, Variant("rcpo", (("cost_limit", 15.0),))])
    pale, dark = (styles[variant] for variant in sizes)
    assert dark["color"] == LOOKS["cpo"].colour != pale["color"]
    assert pale["linestyle"] == dark["linestyle"] == line_style(Variant("cpo"))["linestyle"]
    for alone in (Variant("sb-trpo"), Variant("rcpo", (("cost_limit", 15.0),))):
        assert styles[alone] == line_style(alone)


def test_relapses_begin_above_five_and_end_below_one() -> None:
    cost = np.array([90.0, 20.0, 0.4, 3.0, 6.0, 2.0, 1.0, 0.0, 30.0, 30.0])
    assert figures.relapses(cost) == [(4, 6), (8, 10)]
    assert figures.relapses(np.array([90.0, 20.0, 6.0])) == []  # it was never safe
    assert figures.relapses(np.array([])) == []


def test_relative_errors_leave_out_failed_searches_and_tiny_changes() -> None:
    one = samples.run(GOAL, "sb-trpo", epochs=5)
    one["surrogate_c_change"] = np.array([-1.0, -2.0, 1e-12, np.nan, -4.0])
    one["surrogate_c_predicted"] = np.array([-1.5, -1.0, -1.0, -1.0, -4.0])
    one["accepted_step"] = np.array([1.0, 0.8, 1.0, 1.0, 0.0])
    runs = read_runs(samples.table([one]))
    errors = histograms.relative_errors(runs.usual, "surrogate_c_predicted", "surrogate_c_change")
    np.testing.assert_allclose(errors, [0.5, -0.5])


def test_angles_leave_out_updates_that_changed_nothing() -> None:
    one = samples.run(CIRCLE, "cpo", epochs=3)
    one["angle_r"], one["accepted_step"] = np.array([80.0, 90.0, np.nan]), np.array([0.0, 1.0, 1.0])
    runs = read_runs(samples.table([one]))
    assert histograms.by_method(runs, CIRCLE, "angle_r")[Variant("cpo")].tolist() == [90.0]


def test_profiles_are_shares_that_fall_and_weigh_tasks_alike() -> None:
    thresholds = np.array([0.0, 0.3, 0.6, 1.0])
    share, low, high = planes.profile([np.array([0.0, 0.5]), np.array([1.0])], thresholds)
    assert share.tolist() == [1.0, 0.75, 0.5, 0.5]
    assert (low <= share).all()
    assert (share <= high).all()


def test_profiles_have_the_methods_and_tasks_of_the_largest_table_without_a_gap() -> None:
    whole = [samples.run(task, algo) for task in (GOAL, CIRCLE) for algo in ("sb-trpo", "cpo", "rcpo")]
    incomplete = [samples.run(BUTTON, "sb-trpo"), samples.run(GOAL, "crpo"), samples.run(GOAL, "cpo", cost_limit=15.0)]
    figure = planes.performance_profiles(read_runs(samples.table([*whole, *incomplete])))
    assert figure._suptitle.get_text() == "Performance profiles over 2 tasks"  # type: ignore[attr-defined]
    assert [line.get_label() for line in figure.axes[0].lines] == ["SB-TRPO", "CPO", "RCPO"]


def test_the_frontier_runs_along_beta() -> None:
    runs = read_runs(samples.table([samples.run(BUTTON, "sb-trpo", beta=beta) for beta in (0.9, 0.6, 0.75)]))
    assert [variant.get("beta") for variant in planes.frontiers(runs, BUTTON)[Variant("sb-trpo")]] == [0.6, 0.75, 0.9]


def test_methods_with_several_biases_have_a_line_each_and_others_a_point() -> None:
    biased = [samples.run(GOAL, algo, beta=beta) for algo in ("sb-trpo", "sb-trpo_annealed") for beta in (0.6, 0.9)]
    figure = planes.beta_frontier(read_runs(samples.table([*biased, samples.run(GOAL, "cpo")])))
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert [label for label in labels if "β" in label] == ["SB-TRPO, β = 0.6, 0.9", "SB-TRPO, annealed, β = 0.6, 0.9"]
    assert [points.get_label() for points in figure.axes[0].collections if "CPO" in points.get_label()] == ["CPO"]
    theirs = [line.get_xydata().tolist() for axes in figure.axes for line in axes.lines if "paper" in line.get_label()]
    assert theirs == [[[0.68, 1.6]], [[18.0, 2.4]]]  # as printed: safety and the product, cost and reward
    assert figure.axes[0].get_ylabel() == "reward × safety probability"


def test_variants_of_a_method_have_frontiers_of_their_own_from_pale_to_dark() -> None:
    ran = [samples.run(GOAL, "sb-trpo", beta=b, num_envs=worlds) for worlds in (200, 20) for b in (0.6, 0.75, 0.9)]
    figure = planes.beta_frontier(read_runs(samples.table(ran)))
    pale, dark = (line for line in figure.axes[0].lines if "β" in str(line.get_label()))
    assert pale.get_label() == "SB-TRPO, β = 0.6, 0.75, 0.9"
    assert dark.get_label() == "SB-TRPO, 200 worlds, β = 0.6, 0.75, 0.9"
    assert (dark.get_color(), pale.get_color() != dark.get_color()) == (LOOKS["sb-trpo"].colour, True)


def test_a_frontier_says_where_runs_began_if_all_did_with_one_policy() -> None:
    start, other = (f"point_goal@{digits}" for digits in ("0123456789ab", "ba9876543210"))
    ran = [samples.run(GOAL, "sb-trpo", beta=beta, init_from=start) for beta in (0.6, 0.75, 0.9)]
    for one, episodes in zip(ran, (200, 20, 20), strict=True):
        one["episodes"] = np.full(len(one["epoch"]), episodes)

    def began(runs: list[dict[str, Any]]) -> list[Any]:
        lines = [line for axes in planes.beta_frontier(read_runs(samples.table(runs))).axes for line in axes.lines]
        return [line.get_xydata().tolist() for line in lines if str(line.get_label()).startswith("before")]

    safety, reward, cost = (np.array([one[m][0] for one in ran]) for m in ("safety_probability", "reward", "cost"))
    shares = np.array([200, 20, 20]) / 240
    assert began(ran) == [[pytest.approx([safety @ shares, (safety * reward) @ shares])],
                          [pytest.approx([cost @ shares, reward @ shares])]]  # fmt: skip
    elsewhere = [samples.run(GOAL, "sb-trpo", beta=beta, num_envs=200, init_from=other) for beta in (0.6, 0.9)]
    assert began([*ran, *elsewhere]) == []
    assert began([samples.run(GOAL, "sb-trpo", beta=beta) for beta in (0.6, 0.9)]) == []
    for one in ran:  # in the first epoch no episode ended
        one["episodes"][0], one["reward"][0], one["cost"][0], one["safety_probability"][0] = 0, *np.full(3, np.nan)
    assert began(ran) == []


def test_progress_has_the_papers_safety_where_its_method_ran() -> None:
    def theirs(task: str, algo: str) -> list[float]:
        axes = figures.progress(read_runs(samples.table([samples.run(task, algo)]))).axes
        return [float(line.get_ydata()[0]) for one in axes for line in one.lines if "paper" in str(line.get_label())]

    assert theirs(GOAL, "sb-trpo_growing") == [0.68]
    assert theirs(GOAL, "cpo") == theirs("ToyCorridor-v0", "sb-trpo") == []


def test_every_method_has_a_look_of_its_own() -> None:
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert look(Variant("cpo", (("cost_limit", 15.0),))) == Look(LOOKS["cpo"].colour, "dotted")
    assert look(Variant("unheard of")).colour


def test_nothing_in_a_name_is_taken_for_mathematics() -> None:
    from matplotlib.cbook import is_math_text

    assert not is_math_text(literal("$x$ and $\\frac{"))


@pytest.mark.parametrize(
    "draw",
    [
        lambda runs: figures.car_circle(runs),
        lambda runs: figures.long_run(runs, BUTTON),
        lambda runs: figures.training_curves(runs, BUTTON),
        lambda runs: figures.what_holds(runs, GOAL),
        lambda runs: histograms.angles(runs, "reward"),
        lambda runs: histograms.angles(runs, "cost"),
        lambda runs: histograms.model_errors(runs),
        lambda runs: planes.beta_frontier(runs),
        lambda runs: planes.performance_profiles(runs),
    ],
)
def test_figures_without_runs_say_what_they_need(draw: Callable[[Any], Any]) -> None:
    with pytest.raises(Missing, match="no "):
        draw(read_runs(samples.table([samples.run(GOAL, "focops")])))


@pytest.mark.parametrize("tasks", [[CIRCLE], [CIRCLE, GOAL], [BUTTON, CIRCLE]])
def test_headings_fit_their_figures(tasks: list[str]) -> None:
    runs = read_runs(samples.table([samples.run(task, "sb-trpo") for task in tasks]))
    drawn = [histograms.angles(runs, "reward"), histograms.angles(runs, "cost"), planes.safety_planes(runs)]
    for figure in (*drawn, figures.progress(runs)):
        figure.draw_without_rendering()
        assert len(figure.axes) in (len(tasks), 2 * len(tasks))
        extent = figure._suptitle.get_window_extent()  # type: ignore[attr-defined]
        assert extent.x0 >= 0
        assert extent.x1 <= figure.bbox.width


@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_sheet_has_the_course_of_all_tasks(count: int) -> None:
    tasks = list(paper.tasks())[:count]
    runs = read_runs(samples.table([samples.run(task, algo) for task in tasks for algo in ("sb-trpo", "cpo")]))
    figure = figures.progress(runs)
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in shown if axes.lines and axes.get_title(loc="left")] == [
        paper.tasks()[task] for task in tasks
    ]
    assert len(shown) == 2 * count
    for axes in shown:
        below = [figures.PAPERS] if not axes.get_title(loc="left") else []
        assert [line.get_label() for line in axes.lines] == ["SB-TRPO", "CPO", *below]
    first = runs.curve(tasks[0], Variant("cpo"), "safe_reward")
    assert first is not None
    np.testing.assert_allclose(shown[0].lines[1].get_ydata(), first.thinned(figures.POINTS).mean)  # type: ignore[arg-type]
    for names in ({}, {"CPO": "other"}):
        [legend] = figures.progress(runs, names=names).legends
        expected = ["SB-TRPO", names.get("CPO", "CPO"), figures.PAPERS]
        assert [text.get_text() for text in legend.get_texts()] == expected


@pytest.mark.parametrize(("least", "start"), [(0.1, 0), (0.6, 0.5), (0.75, 0.75), (1.0, 0.75)])
def test_safety_has_one_scale_on_which_its_changes_can_be_seen(least: float, start: float) -> None:
    safe, other = (samples.run(task, "sb-trpo") for task in (HOPPER, CIRCLE))  # the paper's are safe there, too
    safe["safety_probability"], other["safety_probability"] = np.full(30, 1.0), np.full(30, least)
    *_, one, another = figures.progress(read_runs(samples.table([safe, other]))).axes
    assert one.get_ylim() == another.get_ylim() == pytest.approx((start, 1), abs=0.021)


def test_a_plane_for_each_task_has_every_method_and_the_papers_hollow() -> None:
    ran = [samples.run(GOAL, "sb-trpo"), samples.run(GOAL, "sb-trpo_annealed"), samples.run(CIRCLE, "cpo")]
    figure = planes.safety_planes(read_runs(samples.table(ran)))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Point Goal", "Car Circle"]
    labels = [axes.get_legend_handles_labels()[1] for axes in figure.axes]
    # The paper's point of a method is there on a task on which the method did not run as well.
    assert labels[0] == ["SB-TRPO, the paper's", "CPO, the paper's", "SB-TRPO", "SB-TRPO, annealed"]
    printed = paper.main()["sb-trpo"][GOAL]
    hollow = next(line for line in figure.axes[0].lines if line.get_label() == "SB-TRPO, the paper's")
    place = [float(hollow.get_xdata()[0]), float(hollow.get_ydata()[0])]  # type: ignore[index]
    assert place == [printed["safety_probability"].mean, printed["safe_reward"].mean]
    # Ours are what the paper's are, a product, with a bar at the safe reward; elsewhere they are the safe reward.
    (bar,) = (line for line in figure.axes[1].lines if line.get_marker() == "_")
    runs = read_runs(samples.table(ran))
    safe, product = (runs.pooled(CIRCLE, Variant("cpo"), name) for name in ("safe_reward", paper.PRODUCT))
    assert safe is not None
    assert product is not None
    assert bar.get_ydata() == pytest.approx([safe.mean])  # type: ignore[arg-type]
    assert figure.axes[1].get_ylabel() == "reward × safety probability"
    toy = planes.safety_planes(read_runs(samples.table([samples.run(GOAL, "sb-trpo", beta=0.9)])))
    assert toy.axes[0].get_ylabel() == "safe reward"
    [legend] = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {label for own in labels for label in own}
    # Without the paper's points they are the safe reward everywhere.
    alone = planes.safety_planes(runs, printed=False)
    assert {axes.get_ylabel() for axes in alone.axes} == {"safe reward"}
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["SB-TRPO", "SB-TRPO, annealed", "CPO"]


def test_pictures_have_a_palette_and_their_resolution() -> None:
    runs = read_runs(samples.table([samples.run(GOAL, "sb-trpo")]))
    with Image.open(io.BytesIO(files(partial(planes.safety_planes, runs))["png"])) as picture:
        assert picture.mode == "P"
        assert picture.info["dpi"] == pytest.approx((PNG_DPI, PNG_DPI), abs=0.1)
