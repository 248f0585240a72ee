"""Kafka's broker settings without effect here: parsed, stored, and shown as Kafka shows them.

Names, types and defaults are those of Kafka 4.3.1. This module is imported only if a setting is in
no other table, or if all settings of a broker are described: it costs nothing at startup.
"""

from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.setting import CLUSTER_WIDE, READ_ONLY, Setting

_PACKAGE = "org.apache.kafka."

_ROWS = """
alter.config.policy.class.name class null
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
background.threads int 10 dynamic
client.quota.callback.class class null
config.providers list "" dynamic
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list ""
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.max.bytes int 1048576
controller.quorum.fetch.snapshot.max.bytes int 1048576
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
controller.quorum.voters list ""
controller.socket.timeout.ms int 30000
cordoned.log.dirs list "" dynamic
create.topic.policy.class.name class null
delegation.token.expiry.check.interval.ms long 3600000
delegation.token.expiry.time.ms long 86400000
delegation.token.max.lifetime.ms long 604800000
delegation.token.secret.key password null
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners list null
fetch.purgatory.purge.interval.requests int 1000
follower.fetch.last.tiered.offset.enable boolean false dynamic
group.consumer.assignment.interval.ms int 1000 dynamic
group.consumer.assignors list uniform,range
group.consumer.heartbeat.interval.ms int 5000
group.consumer.max.assignment.interval.ms int 15000
group.consumer.max.heartbeat.interval.ms int 15000
group.consumer.max.session.timeout.ms int 60000
group.consumer.max.size int 2147483647
group.consumer.migration.policy string bidirectional
group.consumer.min.assignment.interval.ms int 0
group.consumer.min.heartbeat.interval.ms int 5000
group.consumer.min.session.timeout.ms int 45000
group.consumer.session.timeout.ms int 45000
group.coordinator.append.linger.ms int -1
group.coordinator.background.threads int 2
group.coordinator.cached.buffer.max.bytes int 1048588 dynamic
group.coordinator.rebalance.protocols list classic,consumer,streams
group.coordinator.threads int 4
group.share.assignment.interval.ms int 1000 dynamic
group.share.assignors list simple
group.share.delivery.count.limit int 5
group.share.heartbeat.interval.ms int 5000
group.share.max.assignment.interval.ms int 15000
group.share.max.delivery.count.limit int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.partition.max.record.locks int 4000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.share.sessions int 2000
group.share.max.size int 200
group.share.min.assignment.interval.ms int 0
group.share.min.delivery.count.limit int 2
group.share.min.heartbeat.interval.ms int 5000
group.share.min.partition.max.record.locks int 100
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 2000
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
group.streams.assignment.interval.ms int 1000 dynamic
group.streams.heartbeat.interval.ms int 5000
group.streams.initial.rebalance.delay.ms int 3000
group.streams.max.assignment.interval.ms int 15000
group.streams.max.heartbeat.interval.ms int 15000
group.streams.max.session.timeout.ms int 60000
group.streams.max.size int 2147483647
group.streams.max.standby.replicas int 2
group.streams.min.assignment.interval.ms int 0
group.streams.min.heartbeat.interval.ms int 5000
group.streams.min.session.timeout.ms int 45000
group.streams.num.standby.replicas int 0
group.streams.session.timeout.ms int 45000
initial.broker.registration.timeout.ms int 60000
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list ""
log.cleaner.io.buffer.load.factor double 0.9 dynamic
log.cleaner.io.buffer.size int 524288 dynamic
log.dir.failure.timeout.ms long 30000
metadata.log.dir string null
metadata.log.max.record.bytes.between.snapshots long 20971520
metadata.log.max.snapshot.interval.ms long 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list org.apache.kafka.common.metrics.JmxReporter dynamic
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
num.io.threads int 8 dynamic
num.network.threads int 3 dynamic
num.recovery.threads.per.data.dir int 2 dynamic
num.replica.alter.log.dirs.threads int null
num.replica.fetchers int 1 dynamic
offsets.load.buffer.size int 5242880
offsets.topic.compression.codec int 0
principal.builder.class class ~common.security.authenticator.DefaultKafkaPrincipalBuilder dynamic
process.roles list ""
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500
remote.fetch.max.wait.ms int 500 dynamic
remote.list.offsets.request.timeout.ms long 30000 dynamic
remote.log.index.file.cache.total.size.bytes long 1073741824 dynamic
remote.log.manager.copier.thread.pool.size int 10 dynamic
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 dynamic
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.expiration.thread.pool.size int 10 dynamic
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 dynamic
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.follower.thread.pool.size int 2 dynamic
remote.log.manager.task.interval.ms long 30000
remote.log.manager.thread.pool.size int 2
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name string ~server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path string null
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string null
remote.log.reader.max.pending.tasks int 100
remote.log.reader.threads int 10 dynamic
remote.log.storage.manager.class.name string null
remote.log.storage.manager.class.path string null
remote.log.storage.manager.impl.prefix string rsm.config.
remote.log.storage.system.enable boolean false
replica.socket.receive.buffer.bytes int 65536
replication.quota.window.num int 11
replication.quota.window.size.seconds int 1
sasl.client.callback.handler.class class null
sasl.kerberos.kinit.cmd string /usr/bin/kinit dynamic
sasl.kerberos.min.time.before.relogin long 60000 dynamic
sasl.kerberos.principal.to.local.rules list DEFAULT dynamic
sasl.kerberos.service.name string null dynamic
sasl.kerberos.ticket.renew.jitter double 0.05 dynamic
sasl.kerberos.ticket.renew.window.factor double 0.8 dynamic
sasl.login.callback.handler.class class null
sasl.login.class class null
sasl.login.connect.timeout.ms int null
sasl.login.read.timeout.ms int null
sasl.login.refresh.buffer.seconds short 300 dynamic
sasl.login.refresh.min.period.seconds short 60 dynamic
sasl.login.refresh.window.factor double 0.8 dynamic
sasl.login.refresh.window.jitter double 0.05 dynamic
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string null
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string null
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string null
sasl.oauthbearer.assertion.file string null
sasl.oauthbearer.assertion.private.key.file string null
sasl.oauthbearer.assertion.private.key.passphrase password null
sasl.oauthbearer.assertion.template.file string null
sasl.oauthbearer.jwt.retriever.class class ~common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class ~common.security.oauthbearer.DefaultJwtValidator
sasl.server.callback.handler.class class null
security.providers string null
share.coordinator.append.linger.ms int -1
share.coordinator.cached.buffer.max.bytes int 1048588 dynamic
share.coordinator.load.buffer.size int 5242880
share.coordinator.snapshot.update.records.per.snapshot int 500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.replication.factor short 3
share.coordinator.state.topic.segment.bytes int 104857600
share.coordinator.threads int 1
share.coordinator.write.timeout.ms int 5000
share.fetch.purgatory.purge.interval.requests int 1000
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.engine.factory.class class null dynamic
ssl.keymanager.algorithm string SunX509 dynamic
ssl.keystore.password password null dynamic
ssl.protocol string TLSv1.3 dynamic
ssl.provider string null dynamic
ssl.secure.random.implementation string null dynamic
ssl.trustmanager.algorithm string PKIX dynamic
ssl.truststore.password password null dynamic
telemetry.max.bytes int 1048576
transaction.state.log.load.buffer.size int 5242880
transaction.two.phase.commit.enable boolean false
unstable.api.versions.enable boolean false
"""  # noqa: E501 - one row a line
"""Name, type and default; `dynamic` if it can be changed at run time. `~` is Kafka's package,
`null` means no default and `""` an empty one."""

_FORMER = """
advertised.host.name advertised.port broker.id.generation.enable control.plane.listener.name
controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms host.name
inter.broker.protocol.version leader.imbalance.per.broker.percentage
log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms offsets.commit.required.acks port reserved.broker.max.id
zookeeper.connect zookeeper.connection.timeout.ms zookeeper.metadata.migration.enable
zookeeper.session.timeout.ms zookeeper.set.acl
"""
"""Removed in Kafka 4, but still in many files."""


_PREFIXES = ("listener.name.", "log.cleaner.", "quota.", "sasl.", "ssl.", "zookeeper.")


def _setting(row: str) -> Setting:
    name, kind, default, *dynamic = row.split()
    text = None if default == "null" else default.replace("~", _PACKAGE).strip('"')
    return Setting(
        name,
        kind,
        text,
        "",
        dynamic=CLUSTER_WIDE if dynamic else READ_ONLY,
        has_effect=False,
    )


IGNORED: dict[str, Setting] = {
    setting.name: setting for setting in map(_setting, _ROWS.strip().split("\n"))
}
"""Defaults are texts here, in Kafka's spelling."""

_NAMES = frozenset(IGNORED).union(_FORMER.split())


def is_kafkas(name: str) -> bool:
    """Whether Kafka has this setting; some names contain the name of a listener or a plug-in."""
    return name in _NAMES or name.startswith(_PREFIXES)


def nearest(name: str) -> str | None:
    """The known setting with the most similar name, or None."""
    from difflib import get_close_matches

    found = get_close_matches(name, [*BROKER, *_NAMES], n=1, cutoff=0.8)
    return found[0] if found else None
