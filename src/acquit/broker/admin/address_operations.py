"""The operations on the rules by which addresses are treated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.options import AddressRule
from acquit.broker.options.address import AddressPolicy
from acquit.errors import ConfigurationError
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.nodes.addresses import Policies

_NAMELESS = "the application property 'name' must be an address, or a pattern of addresses"


def read_address(request: ManagementRequest) -> Value:
    """Return the policy in force at an address, whether there is a queue or not, and the rules that it comes from."""
    if request.name is None:
        raise RequestFailure(400, _NAMELESS)
    policies = request.broker.policies
    policy = policies.policy_of(request.name)
    settings: dict[Value, Value] = {field.name: getattr(policy, field.name) for field in fields(AddressPolicy)}
    rules = [_encode(rule, policies) for rule in policies.rules_for(request.name)]
    return {"address": request.name, "settings": settings, "rules": rules}


def query_addresses(request: ManagementRequest) -> Value:
    """Return the rules that operators gave, by pattern."""
    rows: list[Value] = [[rule.match, _settings(rule)] for rule in request.broker.rules.rules]
    return {"attributeNames": ["match", "settings"], "results": rows}


def update_address(request: ManagementRequest) -> Later[Value]:
    """Give an address, or all that match a pattern, other settings than the configuration does."""
    settings = request.options({"settings": Mapping}).get("settings")
    if request.name is None or not isinstance(settings, Mapping):
        raise RequestFailure(400, f"the body must be a map {{settings: {{name: value}}}}, and {_NAMELESS}")
    plain: dict[str, Value] = {str(name): _plain(value) for name, value in settings.items()}
    told: dict[Value, Value] = dict(plain.items())
    return _put(request, plain).then(lambda match: {"match": match, "settings": told})


def delete_address(request: ManagementRequest) -> Later[Value]:
    """Take back what operators gave an address or pattern: what the configuration says counts again."""
    if all(rule.match != request.name for rule in request.broker.rules.rules):
        raise RequestFailure(404, f"no operator gave a rule for {request.name!r}")
    return _put(request, {}).then(lambda match: {"match": match})


def _put(request: ManagementRequest, settings: Mapping[str, object]) -> Later[str]:
    assert request.name is not None
    try:
        return request.broker.put_rule(request.name, settings)
    except ConfigurationError as exc:
        raise RequestFailure(400, str(exc)) from exc


def _plain(value: object) -> Value:
    """Return a setting without the type that AMQP gave it. Raises RequestFailure for what none can be."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise RequestFailure(400, f"a setting is a boolean, a number or a text, not {value!r:.64}")


def _encode(rule: AddressRule, policies: Policies) -> Value:
    source = "operator" if rule in policies.operators else "configuration"
    return {"match": rule.match, "settings": _settings(rule), "source": source}


def _settings(rule: AddressRule) -> dict[Value, Value]:
    return {name: _plain(value) for name, value in rule.settings.items()}


__all__ = ["delete_address", "query_addresses", "read_address", "update_address"]
