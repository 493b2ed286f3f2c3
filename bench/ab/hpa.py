"""What KEDA and the Kubernetes HorizontalPodAutoscaler make of a query: polled, by the type `Value` or
`AverageValue`, within a tolerance, and moved no faster than the behaviour says.

Written from the Kubernetes documentation ("Horizontal Pod Autoscaling", algorithm details and configurable
behaviour) and KEDA's (Prometheus scaler). test_hpa.py holds it against known rows."""

import dataclasses
import math

TOLERANCE = 0.1


@dataclasses.dataclass
class Step:
    """At most the larger of two steps in each period; `share` is of what there was at its beginning."""
    pods: int
    share: float
    period: float


@dataclasses.dataclass
class Behavior:
    """How an HPA moves; seconds. A window of wishes must agree before anything moves."""
    up_window: float
    down_window: float
    up: Step
    down: Step

    def times(self, scale):
        def step(one):
            return dataclasses.replace(one, period=one.period * scale)
        return Behavior(self.up_window * scale, self.down_window * scale, step(self.up), step(self.down))


# The defaults of autoscaling/v2.
DEFAULT = Behavior(0, 300, Step(4, 1.0, 15), Step(0, 1.0, 15))
# The limits that the queue latency was deployed with: one up a minute after a minute, one down each two
# minutes after ten.
ONE_BY_ONE = Behavior(60, 600, Step(1, 0.0, 60), Step(1, 0.0, 120))


def within_tolerance(ratio):
    return 1.0 - TOLERANCE <= ratio <= 1.0 + TOLERANCE


def ceil(replicas):
    """Up, but not for what is a whole number but for rounding."""
    return math.ceil(replicas * (1 - 1e-12))


def wish_by_value(value, target, size, ready):
    """`Value`: the number does not grow with the fleet; what is ready, times the ratio."""
    ratio = value / target
    if ready == 0:
        return ceil(ratio)
    return size if within_tolerance(ratio) else ceil(ratio * ready)


def wish_by_average_value(value, target, size, pods):
    """`AverageValue`: the number is a total; `pods` is `status.replicas`, ready or not."""
    if pods > 0 and within_tolerance(value / (target * pods)):
        return pods
    return ceil(value / target)


class Hpa:
    """Between a wish and a size: minimum and maximum, stabilization, steps."""

    def __init__(self, behavior, least, most):
        self.behavior, self.least, self.most = behavior, least, most
        self.wishes = []   # (when, wish), the size that was found first
        self.moves = []    # (when, by how much)

    def settle(self, now, size, wish):
        wish = min(max(wish, self.least), self.most)
        if not self.wishes:
            self.wishes.append((now, size))
        self.wishes.append((now, wish))
        longest = max(self.behavior.up_window, self.behavior.down_window)
        self.wishes = [(at, one) for at, one in self.wishes if at > now - longest or at == now]
        settled = max(size, min([wish, *self._wishes_since(now - self.behavior.up_window)]))
        settled = min(settled, max([wish, *self._wishes_since(now - self.behavior.down_window)]))
        if settled > size:
            settled = max(size, min(settled, self._limit(now, size, self.behavior.up, 1)))
        elif settled < size:
            settled = min(size, max(settled, self._limit(now, size, self.behavior.down, -1)))
        if settled != size:
            self.moves.append((now, settled - size))
        return settled

    def _wishes_since(self, then):
        return [one for at, one in self.wishes if at > then]

    def _limit(self, now, size, step, sign):
        """How far it may go: from what there was before the moves of this period."""
        before = size - sum(by for at, by in self.moves if at > now - step.period)
        by_share = before * (1 + sign * step.share)
        if sign > 0:
            return max(before + step.pods, ceil(by_share))
        return min(before - step.pods, ceil(by_share))


class Keda:
    """A query, polled, before an HPA; ticked as often as its caller likes. `ask` answers a number, or None where
    there is none; `size`, `ready` and `pods` are the fleet's at that moment."""

    def __init__(self, ask, kind, target, poll, sync, behavior, least, most, null_is_zero):
        self.ask, self.kind, self.target = ask, kind, target
        self.poll, self.sync, self.null_is_zero = poll, sync, null_is_zero
        self.hpa = Hpa(behavior, least, most)
        self.value = self.wish = None
        self.polled = self.synced = -math.inf

    def tick(self, now, size, ready, pods):
        """The size to have; None where nothing is to be changed."""
        if now >= self.polled + self.poll:
            self.polled = now
            value = self.ask()
            if value is None and self.null_is_zero:
                value = 0.0
            self.value = value if value is not None and math.isfinite(value) else None
        if now < self.synced + self.sync:
            return None
        self.synced = now
        if self.value is None:   # KEDA answers an error, and the HPA keeps what there is
            return None
        if self.kind == "Value":
            self.wish = wish_by_value(self.value, self.target, size, ready)
        else:
            self.wish = wish_by_average_value(self.value, self.target, size, pods)
        settled = self.hpa.settle(now, size, self.wish)
        return settled if settled != size else None
