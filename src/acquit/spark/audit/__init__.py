"""The audit: what became of every message, from the journals of brokers, at any size.

`lives` is the idea: rows that can be put together piece by piece. `segment` folds one segment to such pieces, `bucket`
puts the pieces of many together, `seals` and `balance` hold them to what the journal says of itself, `log` makes a run
visible or not. `plan`, `jobs` and `run` are Spark's part; `told` is what its tasks said, `kept` what the driver keeps
from run to run; `results` reads what came of it. `reconcile` holds that beside what others have.
"""

from __future__ import annotations

from acquit.spark.audit.options import AuditOptions, AuditProgress, AuditSummary, summary_json
from acquit.spark.audit.run import audit

__all__ = ["AuditOptions", "AuditProgress", "AuditSummary", "audit", "summary_json"]
