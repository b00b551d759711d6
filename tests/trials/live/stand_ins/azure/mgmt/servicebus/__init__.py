"""The resource manager's client for Service Bus, over the broker in this process."""

from types import SimpleNamespace
from typing import Any

from sbpair.broker.clock import parse_duration
from tests.trials.live.cloud import TESTED, name_and_key, the_cloud

from .models import SBAuthorizationRule, SBQueue, SBSubscription


class _Namespaces:
    """Whatever namespace is asked for, it is the one that is there."""

    def begin_create_or_update(self, group: str, name: str, parameters: object) -> SimpleNamespace:
        made = SimpleNamespace(name=TESTED, id=TESTED)
        return SimpleNamespace(result=lambda: made)

    def list_keys(self, group: str, namespace: str, rule: str) -> SimpleNamespace:
        return _keys("", rule)

    def delete(self, group: str, name: str) -> None:
        """It stays."""

    def create_or_update_authorization_rule(
        self, group: str, namespace: str, name: str, rule: SBAuthorizationRule
    ) -> SimpleNamespace:
        return _rule("", name, rule)

    def delete_authorization_rule(self, group: str, namespace: str, name: str) -> None:
        the_cloud().namespace().remove_policy(name)


class _Queues:
    def create_or_update(self, group: str, namespace: str, name: str, queue: SBQueue) -> SimpleNamespace:
        the_cloud().namespace().create_queue(
            name,
            lock_duration=parse_duration(queue.lock_duration),
            requires_duplicate_detection=queue.requires_duplicate_detection,
            dead_lettering_on_message_expiration=queue.dead_lettering_on_message_expiration,
            requires_session=queue.requires_session,
            enable_partitioning=queue.enable_partitioning,
        )
        return SimpleNamespace(name=name, id=name)

    def delete(self, group: str, namespace: str, name: str) -> None:
        the_cloud().namespace().delete_queue(name)

    def list_keys(self, group: str, namespace: str, queue: str, rule: str) -> SimpleNamespace:
        return _keys(queue, rule)

    def create_or_update_authorization_rule(
        self, group: str, namespace: str, queue: str, name: str, rule: SBAuthorizationRule
    ) -> SimpleNamespace:
        return _rule(queue, name, rule)

    def delete_authorization_rule(self, group: str, namespace: str, queue: str, name: str) -> None:
        the_cloud().namespace().remove_policy(name, entity=queue)


class _Topics:
    def create_or_update(self, group: str, namespace: str, name: str, topic: object) -> SimpleNamespace:
        the_cloud().namespace().create_topic(name)
        return SimpleNamespace(name=name, id=name)

    def delete(self, group: str, namespace: str, name: str) -> None:
        the_cloud().namespace().delete_topic(name)


class _Subscriptions:
    def create_or_update(
        self, group: str, namespace: str, topic: str, name: str, subscription: SBSubscription
    ) -> SimpleNamespace:
        the_cloud().namespace().create_subscription(
            topic,
            name,
            lock_duration=parse_duration(subscription.lock_duration),
            requires_session=subscription.requires_session,
        )
        return SimpleNamespace(name=name, id=name)

    def delete(self, group: str, namespace: str, topic: str, name: str) -> None:
        the_cloud().namespace().delete_subscription(topic, name)


class ServiceBusManagementClient:
    """Namespaces, queues, topics and subscriptions, and the keys to them."""

    def __init__(self) -> None:
        self.namespaces: Any = _Namespaces()
        self.queues: Any = _Queues()
        self.topics: Any = _Topics()
        self.subscriptions: Any = _Subscriptions()


_made: dict[str, str] = {}


def _rule(entity: str, name: str, rule: SBAuthorizationRule) -> SimpleNamespace:
    rights = {right.value for right in rule.rights}
    _made[name] = name_and_key(the_cloud().namespace().add_policy(name, rights, entity=entity))[1]
    return SimpleNamespace(name=name, id=name)


def _keys(entity: str, rule: str) -> SimpleNamespace:
    cloud = the_cloud()
    policy, key = (rule, _made[rule]) if rule in _made else cloud.key()
    connection_string = cloud.connection_string(policy, key, entity=entity)
    return SimpleNamespace(key_name=policy, primary_key=key, primary_connection_string=connection_string)
