"""All fuzz targets. To add one: a function in the module of its family, a row in that module's table."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import broker, engine, journal, sasl, spark, texts, values

TARGETS: dict[str, Target] = {
    target.name: target for family in (values, engine, broker, sasl, texts, journal, spark) for target in family.TARGETS
}
