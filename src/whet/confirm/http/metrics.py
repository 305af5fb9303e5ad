"""GET /metrics: counts in the Prometheus text format; numbers only, no names."""

from __future__ import annotations

from collections import Counter

from whet.confirm.notify import deliveries
from whet.confirm.service import ConfirmService


class Metrics:
    """What this process has answered, and how the service stands."""

    def __init__(self) -> None:
        self._answers: Counter[int] = Counter()

    def count(self, status: int) -> None:
        """Count an answer."""
        self._answers[status] += 1

    def render(self, service: ConfirmService) -> str:
        """Give the whole page."""
        state = service.log.state()
        lines = ["# TYPE whet_confirm_http_responses_total counter"]
        for status, count in sorted(self._answers.items()):
            lines.append(f'whet_confirm_http_responses_total{{status="{status}"}} {count}')
        lines.append("# TYPE whet_confirm_events_total counter")
        for kind, count in sorted(service.log.event_counts.items()):
            lines.append(f'whet_confirm_events_total{{kind="{kind}"}} {count}')
        gauges = {
            "pending_requests": service.count_pending(),
            "waiting_clients": service.hub.waiting,
            "untold_news": service.database.read_now(deliveries.untold),
            "audit_events": state.size,
            "audit_checkpoint_size": state.checkpoint_size,
            "policy_is_broken": int(bool(service.policy_file.error)),
        }
        for name, value in gauges.items():
            lines += [f"# TYPE whet_confirm_{name} gauge", f"whet_confirm_{name} {value}"]
        return "\n".join(lines) + "\n"
