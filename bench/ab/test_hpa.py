#!/usr/bin/env python3
"""What hpa.py must do. Run it by itself; Python's standard library only."""

import json
import pathlib
import unittest
from fractions import Fraction

from hpa import DEFAULT, ONE_BY_ONE, Hpa, Keda, wish_by_average_value, wish_by_value

ROWS = pathlib.Path(__file__).parents[2] / "crates/inflight-core/tests/scaling/vectors/hpa_average_value.json"


class Wishes(unittest.TestCase):
    def test_average_value_is_as_in_the_rows_that_the_core_is_held_against(self):
        for row in json.loads(ROWS.read_text())["rows"]:
            total, target = (float(Fraction(row[name])) for name in ("r_needed", "threshold"))
            wish = wish_by_average_value(total, target, row["current"], row["current"])
            self.assertEqual(min(max(wish, row["min"]), row["max"]), row["clamped"], row)

    def test_value_multiplies_what_is_ready(self):
        self.assertEqual(wish_by_value(250, 100, 3, 2), 5)
        self.assertEqual(wish_by_value(109, 100, 3, 2), 3, "within the tolerance it is the size")
        self.assertEqual(wish_by_value(50, 100, 2, 2), 1)
        self.assertEqual(wish_by_value(0, 100, 2, 2), 0)
        self.assertEqual(wish_by_value(150, 100, 0, 0), 2)


class Moves(unittest.TestCase):
    def sizes(self, behavior, wishes, size=1, sync=15):
        hpa, sizes = Hpa(behavior, 1, 10), []
        for tick, wish in enumerate(wishes):
            size = hpa.settle(tick * sync, size, wish)
            sizes.append(size)
        return sizes

    def test_one_by_one_grows_by_one_a_minute_after_a_minute(self):
        self.assertEqual(self.sizes(ONE_BY_ONE, [5] * 17), [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5])

    def test_one_by_one_shrinks_after_ten_minutes_and_then_each_two(self):
        sizes = self.sizes(ONE_BY_ONE, [1] * 57, size=4)
        self.assertEqual(sizes, [4] * 40 + [3] * 8 + [2] * 8 + [1])

    def test_a_single_smaller_wish_within_the_minute_keeps_it_from_growing(self):
        self.assertEqual(self.sizes(ONE_BY_ONE, [5, 5, 5, 1, 5, 5, 5])[-1], 1)

    def test_the_default_grows_at_once_by_four_or_twice(self):
        self.assertEqual(self.sizes(DEFAULT, [9, 9]), [5, 9])

    def test_the_default_shrinks_after_five_minutes_at_once(self):
        self.assertEqual(self.sizes(DEFAULT, [9] + [2] * 21, size=9), [9] * 20 + [2, 2])

    def test_a_scaled_behaviour_is_the_same_in_scaled_time(self):
        scaled = self.sizes(ONE_BY_ONE.times(0.25), [5] * 17, sync=15 / 4)
        self.assertEqual(scaled, self.sizes(ONE_BY_ONE, [5] * 17))


class Polls(unittest.TestCase):
    def keda(self, answers, null_is_zero):
        return Keda(lambda: answers.pop(0), "AverageValue", 2, 30, 15, DEFAULT, 1, 10, null_is_zero)

    def test_an_answer_counts_until_the_next_poll(self):
        keda = self.keda([8, 12], null_is_zero=False)
        self.assertEqual([keda.tick(at, 1, 1, 1) for at in (0, 10, 15, 29)], [4, None, 4, None])
        self.assertEqual(keda.tick(30, 4, 4, 4), 6)

    def test_no_answer_keeps_the_size_unless_null_is_zero(self):
        self.assertIsNone(self.keda([None], null_is_zero=False).tick(0, 3, 3, 3))
        keda = self.keda([None, None, None], null_is_zero=True)
        keda.tick(0, 3, 3, 3)
        self.assertEqual(keda.wish, 0)

    def test_what_is_no_number_keeps_the_size(self):
        self.assertIsNone(self.keda([float("nan")], null_is_zero=True).tick(0, 3, 3, 3))


if __name__ == "__main__":
    unittest.main()
